"""The page in a real browser: what it shows of a run, and how one gets about in it."""

import re
from pathlib import Path
from typing import Any

import pytest

from packages.view.tests.conftest import Opener, Served, Tab, serve
from packages.view.tests.played import play, step_records, write_metrics, write_step

pytestmark = pytest.mark.slow  # a browser of its own

COLOURS = r"""(column) => {
  const colour = (token) => token.className.match(/\b[dshm]-?\d/)?.[0] ?? "";
  return [...new Set([...column.querySelectorAll(".part .t")].map(colour))];
}"""
GROUP = "#/group?run=a&group=4/train/brackwater"


def test_curves_show_the_seeds_as_a_band_and_can_be_taken_apart(tab: Tab) -> None:
    page = tab.open()
    page.wait_for_selector(".chart canvas")
    assert "reward/mean" in tab.texts(".chart h3 code")
    assert tab.texts(".values dt")[1] == "a, mean of 2 seeds"
    page.get_by_label("seeds as a band").uncheck()
    tab.until("document.querySelector('.values').innerText.includes('b')")
    assert "seeds=0" in page.url
    assert tab.texts(".chart:first-child .values dt") == ["step", "a", "b"]


def test_curves_have_meaning_and_healthy_range_and_the_alarms_on_them(tab: Tab) -> None:
    page = tab.open("#/curves?runs=a&m=loss/entropy")
    page.wait_for_selector(".mark")
    assert "mean entropy of the policy per token" in tab.texts(".chart-meaning")[0]
    assert "healthy: falls slowly" in tab.texts(".healthy")[0]
    page.locator(".mark").click()
    page.wait_for_selector(".alarm")
    assert "the policy repeats itself" in tab.texts(".alarm")[0]
    assert "#/monitors?run=a" in page.url


def test_alarms_that_arrive_after_the_curves_are_marked(tab: Tab) -> None:
    held: list[Any] = []
    tab.page.route("**/monitors", lambda route: held.append(route))
    page = tab.open("#/curves?runs=a&m=loss/entropy")
    page.wait_for_selector(".chart canvas")
    assert page.locator(".mark").count() == 0
    tab.wait(lambda: bool(held), "no alarms were asked for")
    held[0].continue_()
    page.wait_for_selector(".mark")


def test_metrics_are_searched_by_name_and_meaning(tab: Tab) -> None:
    page = tab.open("#/curves?runs=a")
    page.wait_for_selector(".metric")
    page.get_by_label("Search metrics").fill("gradient")
    tab.until("document.querySelectorAll('.metric').length === 1")
    assert "L2 norm" in tab.texts(".metric-about")[0]
    page.get_by_label("Search metrics").fill("searches")
    page.locator(".metric").click()
    page.wait_for_selector("[aria-label='Chart of env/searches']")
    assert "env/searches" in page.url


def test_the_readout_and_the_zoom_are_common_to_all_charts(tab: Tab) -> None:
    page = tab.open("#/curves?runs=a&m=reward/mean,loss/entropy&smooth=0.5")
    page.wait_for_selector(".chart:nth-child(2) canvas")
    over = page.locator(".chart:first-child .u-over")
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    tab.until("[...document.querySelectorAll('.values-step dd')].every((each) => each.innerText === '2')")
    assert tab.texts(".chart:first-child .values dd")[1] == "0.5"
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=4)
    page.mouse.up()
    tab.until("/x=(1.9\\d|2)\\.\\.3\\.6/.test(location.hash)")
    assert "steps 2 to 3" in tab.texts(".toolbar")[0]
    page.keyboard.press("Escape")
    tab.until("!location.hash.includes('x=')")


def test_a_live_run_grows_without_a_reload(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "live", steps=2)
    for served in serve(tmp_path, writer, "live"):
        tab = new_tab(served.base)
        page = tab.open("#/curves?m=reward/mean")
        tab.until("document.querySelector('.values')?.innerText.includes('0.4')")
        assert "live, step 1" in tab.texts(".pulse")[0]
        write_metrics(tmp_path / "live", 2)
        tab.until("document.querySelector('.values').innerText.includes('0.5')")
        tab.open("#/groups")
        page.wait_for_selector(".row-group .row-link")
        before = page.locator(".row-group .row-link").count()
        write_step(tmp_path / "live", writer, 3, step_records(writer, 3))
        tab.until(f"document.querySelectorAll('.row-group .row-link').length === {before + 3}")
        assert "train/hollin-ferry" in tab.texts(".row-link")[0]


def test_groups_are_filtered_and_sorted(tab: Tab) -> None:
    page = tab.open("#/groups?run=a")
    page.wait_for_selector(".row-link")
    assert "16 groups" in tab.texts(".listing-head")[0]
    page.get_by_label("Filter groups").fill("zero step:1..2")
    tab.until("document.querySelector('.listing-head').innerText.includes('2 of 16 groups')")
    assert tab.texts(".row-link") == ["train/saint-orve"] * 2
    assert "q=zero+step:1..2" in page.url
    page.get_by_label("Filter groups").fill("")
    page.get_by_label("Order").select_option("-std")
    tab.until("location.hash.includes('sort=-std')")
    tab.until("!document.querySelector('.row-link').innerText.includes('saint')")


def test_rollouts_are_found_by_text_metric_and_by_a_click_on_their_drop_reason(tab: Tab) -> None:
    page = tab.open("#/rollouts?run=a")
    page.wait_for_selector(".facet-drop")
    page.locator(".facet-drop").click()
    tab.until("document.querySelector('.listing-head').innerText.includes('5 of 80 rollouts')")
    assert "q=drop:timeout" in page.url
    assert set(tab.texts(".row .tag-drop")) == {"timeout"}
    page.locator(".row .tag-drop").first.click()
    tab.until("!location.hash.includes('q=')")
    page.get_by_label("Filter rollouts").fill('"Lenn" metric.exact=1 step:4')
    tab.until("document.querySelector('.listing-head').innerText.includes('5 of 80')")
    page.get_by_label("Filter rollouts").fill("metric.nonsense=1")
    page.wait_for_selector(".empty, .problem")


TYPE_MORE = """() => {
  const write = history.replaceState.bind(history);
  history.replaceState = (...given) => {
    write(...given);
    history.replaceState = write;
    setTimeout(() => {
      const box = document.querySelector("[data-search]");
      box.value = "step:4 reward<1";
      box.dispatchEvent(new Event("input", { bubbles: true }));
    });
  };
}"""


def test_words_typed_while_the_address_changes_are_kept(tab: Tab) -> None:
    page = tab.open("#/rollouts?run=a")
    page.wait_for_selector(".row-link")
    page.evaluate(TYPE_MORE)
    page.get_by_label("Filter rollouts").fill("step:4")
    tab.until("decodeURIComponent(location.hash).endsWith('q=step:4+reward<1')")
    assert page.get_by_label("Filter rollouts").input_value() == "step:4 reward<1"


def test_a_long_list_holds_only_the_rows_in_sight(new_tab: Opener, served: Served) -> None:
    for width, height in ((1280, 800), (360, 740)):
        tab = new_tab(served.base, width, height)
        page = tab.open("#/rollouts?run=a")
        page.wait_for_selector(".row-link")
        assert page.locator(".list-line").count() < 40
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
        page.locator(".virtual").evaluate("(list) => list.scrollTo(0, 1e6)")
        page.wait_for_selector("[aria-rowindex='80'] .row-link")
        assert page.locator(".list-line").count() < 40


def test_a_group_stands_side_by_side_with_its_prompt_once(tab: Tab) -> None:
    page = tab.open(GROUP)
    page.wait_for_selector(".shared")
    assert page.locator(".column").count() == 4
    assert tab.texts(".column-reward") == ["1", "0", "1", "1"]
    assert tab.texts(".column-advantage") == ["+0.25", "−0.75", "+0.25", "+0.25"]
    assert "Which river runs through Brackwater?" in tab.texts(".shared")[0]
    assert not any("Which river" in text for text in tab.texts(".column"))
    first = page.locator(".column").first
    assert "2 turns" in first.inner_text() and "1 tool call" in first.inner_text() and "done" in first.inner_text()
    assert first.locator(".part-label").all_inner_texts() == ["thought", "tool call", "answer"]
    assert first.locator(".role").all_inner_texts() == ["assistant", "user", "assistant"]


def test_a_dropped_rollout_stands_in_its_group_with_the_reason(tab: Tab) -> None:
    page = tab.open("#/group?run=a&group=4/train/tarn-keld")
    page.wait_for_selector(".column .tag-drop")
    assert tab.texts(".column .tag-drop") == ["timeout"]
    page.locator(".column a").nth(3).click()
    page.wait_for_selector(".rollout-facts .problem")
    assert "search() took more than 5 s" in tab.texts(".rollout-facts .problem")[0]


def test_tokens_are_coloured_by_each_statistic(tab: Tab) -> None:
    page = tab.open(GROUP)
    page.wait_for_selector(".shared")
    assert page.locator(".column").nth(0).evaluate(COLOURS) == ["d2"]
    assert page.locator(".column").nth(1).evaluate(COLOURS) == ["d-6"]
    for name, kinds in (("log-prob", "s"), ("ratio", "d"), ("entropy", "s"), ("version", "h"), ("mask", "m")):
        page.get_by_role("radio", name=name).click()
        tab.until(f"location.hash.includes('color={name.replace('-', '')}')")
        found = page.locator(".column").nth(0).evaluate(COLOURS)
        assert {colour[0] for colour in found if colour} == {kinds}
        assert len(found) > 3 or name in ("version", "mask")
        assert page.locator(".legend .swatch").count() > 0
    page.get_by_role("radio", name="plain").click()
    tab.until("location.hash.includes('color=none')")
    assert page.locator(".column").nth(0).evaluate(COLOURS) == [""]


def test_a_token_tells_its_numbers_to_the_pointer_and_to_the_keyboard(tab: Tab) -> None:
    page = tab.open(f"{GROUP}&color=entropy")
    page.wait_for_selector(".shared")
    page.locator(".column").nth(1).locator(".part-tool_call .t").nth(2).hover()
    page.wait_for_selector(".readout")
    readout = tab.texts(".readout")[0]
    for name in ("token", "turn", "advantage", "log-prob", "ratio", "entropy", "version", "mask"):
        assert name in readout
    assert "−0.75" in readout and "trained on" in readout
    assert tab.texts(".readout .chosen dt") == ["entropy"]
    page.mouse.move(5, 5)
    page.wait_for_selector(".readout", state="detached")
    page.locator(".column").nth(0).locator(".t[tabindex]").first.focus()
    page.wait_for_selector(".readout")
    first = tab.texts(".readout dd")[0]
    page.keyboard.press("ArrowRight")
    tab.until(f"document.querySelector('.readout dd').innerText !== {first!r}")


def test_a_link_opens_the_same_token_in_the_same_colours(tab: Tab, new_tab: Opener, served: Served) -> None:
    page = tab.open("#/rollout?run=a&key=train:4:1&color=logprob")
    page.wait_for_selector(".conversation .part-tool_call")
    page.locator(".part-tool_call .t").nth(3).click()
    tab.until("location.hash.includes('tok=')")
    link = page.evaluate("location.hash")
    other = new_tab(served.base)
    page = other.open(link)
    page.wait_for_selector(".t-chosen")
    number = re.search(r"tok=(\d+)", link)
    assert number is not None
    assert page.locator(".t-chosen").get_attribute("data-t") == number[1]
    assert page.get_by_role("radio", name="log-prob").get_attribute("aria-checked") == "true"
    assert page.locator(".strip canvas").count() == 1


def test_two_evaluations_are_compared_task_by_task(tab: Tab) -> None:
    page = tab.open("#/compare?a=a/start_greedy&b=a/final_greedy")
    page.wait_for_selector(".diff ins")
    assert tab.texts(".pairs [role=radio]") == ["all 4", "better 3", "worse 0", "same 1"]
    assert "Ossel" in "".join(tab.texts(".diff del")) and "Lenn" in "".join(tab.texts(".diff ins"))
    assert "Which river" not in tab.texts(".diff-pair:not(.diff-same)")[0]
    page.get_by_role("radio", name="side by side").click()
    page.wait_for_selector(".diff-two")
    left, right = tab.texts(".diff-two > div")[-2:]
    assert "Lenn" not in left and "Ossel" not in right
    assert "view=sides" in page.url
    task = tab.texts(".diff h2")[0]
    page.keyboard.press("j")
    tab.until(f"document.querySelector('.diff h2').innerText !== {task!r}")
    assert "task=" in page.url


def test_a_rollout_is_compared_with_another_of_its_task(tab: Tab) -> None:
    page = tab.open("#/rollout?run=a&key=train:4:1")
    page.wait_for_selector(".others a")
    page.locator(".others a", has_text="step 2").first.click()
    page.wait_for_selector(".diff-pair")
    assert "#/compare?left=a:train:2:" in page.url


def test_the_keyboard_reaches_everything(tab: Tab) -> None:
    page = tab.open("#/groups?run=a&q=-&sort=step")
    page.wait_for_selector(".query-error:not(:empty)")
    page.keyboard.press("Escape")
    page.wait_for_selector(".row-link")
    for key in ("j", "j", "k"):
        page.keyboard.press(key)
    assert page.locator(".chosen").get_attribute("aria-rowindex") == "1"
    page.keyboard.press("Enter")
    page.wait_for_selector(".shared")
    page.keyboard.press("c")
    tab.until("location.hash.includes('color=logprob')")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".rollout .part-answer")
    assert "key=train:0:0" in page.url and "color=logprob" in page.url
    page.wait_for_selector(".others a")  # until then the page knows no other rollout of the task
    page.keyboard.press("]")  # the same task when it was played again
    tab.until("location.hash.includes('key=train:2:')")
    page.wait_for_selector(".rollout .facts >> text=train:2:")  # the rollout before was shown until now
    page.keyboard.press("Escape")
    page.wait_for_selector(".columns")
    page.wait_for_selector(".steps button:not([disabled])")
    page.keyboard.press("[")
    tab.until("location.hash.includes('group=0/train/brackwater')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".virtual")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.hasAttribute('data-search')")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")


@pytest.mark.parametrize(
    "address",
    [
        "#/curves",
        "#/groups?run=a",
        GROUP,
        "#/rollouts?run=a",
        "#/rollout?run=a&key=train:4:1",
        "#/compare",
        "#/monitors?run=a",
    ],
)
def test_a_phone_needs_no_sideways_scroll(new_tab: Opener, served: Served, address: str) -> None:
    tab = new_tab(served.base, 360, 740, has_touch=True)
    page = tab.open(address)
    page.wait_for_timeout(600)
    assert not tab.has_sideways_scroll()


def test_light_and_dark_follow_the_system_until_they_are_chosen(new_tab: Opener, served: Served) -> None:
    tab = new_tab(served.base, color_scheme="dark")
    page = tab.open()
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_label("Light colours").click()
    assert page.evaluate(background) != dark
    page.reload()
    page.wait_for_selector("main > div")
    assert page.get_by_label("Dark colours").count() == 1


def test_what_the_server_refuses_is_said_in_words(tab: Tab) -> None:
    page = tab.open("#/group?run=a&group=7/nowhere")
    page.wait_for_selector(".problem")
    assert "7/nowhere" in tab.texts(".problem")[0]


def test_damaged_lines_and_what_cannot_be_read_are_said_on_every_page(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "new", steps=1)
    with (tmp_path / "new" / "rollouts" / "step_000000.jsonl").open("a") as file:
        file.write('{"task_id": "t", "reward": 1e999, "draw": Infinity}\n')
    (tmp_path / "new" / "rollouts" / "step_000007.jsonl").mkdir()
    for served in serve(tmp_path, writer, "new"):
        tab = new_tab(served.base)
        for address in ("#/curves", "#/rollouts"):
            page = tab.open(address)
            page.wait_for_selector(".note.banner")
            assert tab.texts(".note.banner") == ["new: 1 damaged line of its rollout files left out."]
            page.wait_for_selector(".problem")
            assert "step_000007.jsonl" in tab.texts(".problem")[0]


def test_a_run_without_steps_says_what_will_appear(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "new", steps=1)
    first = ("rollouts/step_000000.jsonl", "held_out/start_greedy.jsonl", "held_out/final_greedy.jsonl")
    for name in ("metrics.jsonl", *first):
        (tmp_path / "new" / name).unlink()
    (tmp_path / "new" / "metrics.jsonl").touch()
    for served in serve(tmp_path, writer, "new"):
        tab = new_tab(served.base)
        for address, words in (
            ("#/curves", "No metrics yet"),
            ("#/groups", "No groups yet"),
            ("#/rollouts", "No rollouts yet"),
            ("#/compare", "Nothing to compare yet"),
        ):
            page = tab.open(address)
            page.wait_for_selector(".empty h2")
            assert tab.texts(".empty h2") == [words]


def test_enter_opens_the_marked_row_after_a_click_on_a_tab(tab: Tab) -> None:
    page = tab.open("#/curves?runs=a")
    page.get_by_role("link", name="Groups").click()
    page.wait_for_selector(".row-link")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".shared")


def test_evaluations_alone_open_on_their_comparison(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "played", steps=1)
    for name, stage in (("one", "start"), ("two", "final")):
        (tmp_path / name / "held_out").mkdir(parents=True)
        text = (tmp_path / "played" / "held_out" / f"{stage}_greedy.jsonl").read_text(encoding="utf-8")
        for mode in ("greedy", "sampled"):
            (tmp_path / name / "held_out" / f"eval_{mode}.jsonl").write_text(text, encoding="utf-8")
        (tmp_path / name / "results.json").write_text("{}")
    for served in serve(tmp_path, writer, "one", "two"):
        tab = new_tab(served.base)
        page = tab.open("")
        page.wait_for_selector(".diff ins")
        assert [box.input_value() for box in page.locator(".picker select").all()] == [
            "one/eval_greedy",
            "two/eval_greedy",
        ]
        assert "0 tokens" not in "".join(tab.texts(".diff-side"))
