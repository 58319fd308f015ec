"""The parts of single pages in a real browser: a task's data, columns, outlines, prompts, axes and present values."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from packages.view.tests.conftest import Opener, Served, Tab, serve
from packages.view.tests.played import Writer, make_tokenizer, play, write_step
from slimrl.types import Message

pytestmark = pytest.mark.slow  # a browser of its own

FACTS = ["question", "answer", "hops"]
# How many lines the characters of each tag stand on.
TAG_LINES = r"""(column) => {
  const walker = document.createTreeWalker(column.querySelector(".part-answer, .segment-text"), NodeFilter.SHOW_TEXT);
  const places = [];
  while (walker.nextNode())
    for (let i = 0; i < walker.currentNode.length; i++) places.push([walker.currentNode, i]);
  const text = places.map(([node, i]) => node.data[i]).join("");
  const top = ([node, i]) => {
    const range = document.createRange();
    range.setStart(node, i);
    range.setEnd(node, i + 1);
    return Math.round(range.getBoundingClientRect().top);
  };
  const tags = [...text.matchAll(/<\/?[a-z_]+>/g)];
  return tags.map((tag) => new Set(places.slice(tag.index, tag.index + tag[0].length).map(top)).size);
}"""
# Elements with a text that is wider than they are.
CUT = """(selector) => [...document.querySelectorAll(selector)]
  .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline")
  .map((each) => each.textContent)"""


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("#/group?run=a&group=4/train/brackwater", ".group > .task-data"),
        ("#/rollout?run=a&key=train:4:1", ".rollout-facts .task-data"),
        ("#/compare?a=a/start_greedy&b=a/final_greedy&task=wiki-search/test/Brackwater", ".diff > .task-data"),
    ],
)
def test_a_tasks_data_stands_on_its_pages(tab: Tab, address: str, place: str) -> None:
    page = tab.open(address)
    page.wait_for_selector(f"{place} dd")
    assert tab.texts(f"{place} dt") == FACTS
    assert tab.texts(f"{place} dd") == ["Which river runs through Brackwater?", "the Lenn", "1"]


def short_group(run: Path, reply: str) -> Writer:
    """A run with one group of eight short replies."""
    asked: list[Message] = [{"role": "user", "content": "c0j1h2l0"}]
    words = ["<reversed", "_text>", *[")</"] * 9, "0l2h", "user assistant"]  # ")</" becomes one token
    writer = Writer(make_tokenizer([*words, reply]), np.random.default_rng(0))
    (run / "tokenizer").mkdir(parents=True)
    writer.tokenizer.save(str(run / "tokenizer" / "tokenizer.json"))
    answered: list[Message] = [*asked, {"role": "assistant", "content": reply}]
    write_step(run, writer, 0, [writer.record("train/c0", answered, n / 8, n / 8 - 0.4379) for n in range(8)])
    return writer


@pytest.mark.parametrize("reversed_text", ["0l2h1j0c", "0l2h1j(c)", ""])
def test_eight_short_replies_fill_the_width_and_no_tag_is_broken(
    tmp_path: Path, new_tab: Opener, reversed_text: str
) -> None:
    reply = f"<reversed_text>{reversed_text}</reversed_text>"
    for served in serve(tmp_path, short_group(tmp_path / "short", reply), "short"):
        tab = new_tab(served.base)
        page = tab.open("#/group?group=0/train/c0")
        page.wait_for_selector(".column:nth-child(8) .part .t")
        columns = page.locator(".column")
        boxes = [columns.nth(number).bounding_box() for number in range(8)]
        assert boxes[0]["x"] >= 0 and 1255 <= boxes[7]["x"] + boxes[7]["width"] <= 1280
        assert len({round(box["width"]) for box in boxes}) == 1
        assert page.locator(".columns").evaluate("(each) => each.scrollWidth <= each.clientWidth")
        assert page.locator(".task-data").count() == 0
        assert [columns.nth(number).evaluate(TAG_LINES) for number in range(8)] == [[1, 1]] * 8
        assert page.evaluate(CUT, ".column-title, .column .segment-text, .column p") == []


def test_the_list_of_groups_has_the_end_of_each_prompt(tab: Tab, new_tab: Opener, served: Served) -> None:
    page = tab.open("#/groups?run=a&q=task:brackwater")
    page.wait_for_selector(".row-link")
    assert set(tab.texts(".row-group .cell-excerpt")) == {"Which river runs through Brackwater?"}
    phone = new_tab(served.base, 360, 740)
    phone.open("#/groups?run=a&q=task:brackwater").wait_for_selector(".row-link")
    assert set(phone.texts(".row-group .cell-excerpt")) == {"Which river runs through Brackwater?"}


def test_an_outline_leads_to_each_event_of_a_conversation(tab: Tab) -> None:
    page = tab.open("#/rollout?run=a&key=train:4:1")
    page.wait_for_selector(".outline li")
    assert tab.texts(".outline button") == ["thought", "search('Brackwater river 5')", "result", "answer"]
    page.set_viewport_size({"width": 1280, "height": 420})
    page.locator(".outline button", has_text="answer").click()
    tab.until("scrollY > 100")


@pytest.mark.parametrize("width", [1280, 360])
def test_no_label_is_cut(new_tab: Opener, served: Served, width: int) -> None:
    tab = new_tab(served.base, width, 800)
    labels = (
        ".metric-name, .metric-value, .run-name, .chart h3, .chart-meaning, .values dt, .facet, .top nav a, .segmented"
    )
    for address, there in (
        ("#/curves?runs=a&m=reward/zero_signal_groups,guard/mismatch_kl", ".chart canvas"),
        ("#/groups?run=a", ".facet"),
        ("#/group?run=a&group=4/train/brackwater", ".part-answer"),
        ("#/monitors?run=a", ".watched td"),
    ):
        tab.open(address).wait_for_selector(there)
        assert tab.page.evaluate(CUT, labels) == []
        nav = tab.page.locator(".top nav a").last.bounding_box()
        assert nav["x"] + nav["width"] <= width


def test_evaluations_are_no_runs_with_curves(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "a", steps=2)
    shutil.copytree(tmp_path / "a" / "held_out", tmp_path / "eval" / "held_out")
    (tmp_path / "eval" / "config.toml").write_text("# slimrl eval @ config.toml\n")
    for served in serve(tmp_path, writer, "a", "eval"):
        tab = new_tab(served.base)
        page = tab.open("#/curves?runs=a,eval")
        page.wait_for_selector(".chart canvas")
        assert tab.texts(".run-name") == ["a"]
        page = tab.open("#/compare")
        page.wait_for_selector(".pairs")
        assert any(text.startswith("eval: ") for text in tab.texts(".picker option"))


def test_where_nothing_was_raised_the_monitors_show_their_values_and_bounds(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "a", steps=5)
    (tmp_path / "a" / "monitors.jsonl").unlink()
    for served in serve(tmp_path, writer, "a"):
        tab = new_tab(served.base)
        page = tab.open("#/monitors")
        page.wait_for_selector(".watched td")
        assert "no alarm" in tab.texts(".listing-head")[0]
        row = page.locator(".watched tr", has=page.get_by_role("rowheader", name="zero signal")).inner_text()
        assert "0.33" in row and "step 4" in row and "max_zero_signal = 0.95" in row
        assert "–" in page.locator(".watched tr", has=page.get_by_role("rowheader", name="judge")).inner_text()
        with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
            file.write(f"{json.dumps({'step': 5, 'reward/zero_signal_groups': 0.63})}\n")
        tab.until("document.querySelector('.watched').innerText.includes('0.39')")


def test_without_a_tokenizer_the_tokens_are_counted_or_it_is_said_why_not(tmp_path: Path, new_tab: Opener) -> None:
    writer = play(tmp_path / "a", steps=1)
    (tmp_path / "a" / "tokenizer" / "tokenizer.json").unlink()
    path = tmp_path / "a" / "held_out" / "final_greedy.jsonl"
    line = json.loads(path.read_text().splitlines()[0])
    line |= {"token_ids": [], "loss_mask": [], "logprobs": [], "versions": [], "sha256": ""}
    path.write_text(f"{json.dumps(line)}\n")
    for served in serve(tmp_path, writer, "a"):
        tab = new_tab(served.base)
        page = tab.open("#/rollout?run=a&key=train:0:1")
        page.wait_for_selector(".facts-list")
        sampled = page.locator(".facts-list div", has_text="tokens sampled").inner_text()
        assert int(sampled.split()[-1]) > 10
        page = tab.open("#/rollout?run=a&key=held_out/final_greedy:8:0")
        tab.until("document.querySelector('.facts-list')?.innerText.includes('not recorded')")
        assert "–" in page.locator(".facts-list div", has_text="tokens in all").inner_text()
