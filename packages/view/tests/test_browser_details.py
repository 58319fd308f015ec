"""Small things in a real browser: what is compared first, long names, and numbers that are not known."""

import json
from pathlib import Path

import pytest

from packages.view.tests.conftest import Opener, Tab, serve
from packages.view.tests.played import play
from slimrl import plugins
from slimrl.config.reading.load import load
from slimrl.config.reading.saved import write_config
from slimrl.config.run import RLConfig

pytestmark = pytest.mark.slow  # a browser of its own

RECIPE = Path(__file__).parents[3] / "examples" / "reverse_text" / "rl.toml"
LONG = f"reverse_text_{'x' * 60}_seed7"


def chosen(tab: Tab) -> list[str]:
    """What the pickers of the page stand at."""
    return [box.input_value() for box in tab.page.locator(".picker select").all()]


def test_two_runs_are_compared_at_their_ends_and_one_before_and_after(
    tab: Tab, tmp_path: Path, new_tab: Opener
) -> None:
    tab.open("#/compare").wait_for_selector(".pairs")
    assert chosen(tab) == ["a/final_greedy", "b/final_greedy"]
    writer = play(tmp_path / LONG, steps=1)
    for served in serve(tmp_path, writer, LONG):
        alone = new_tab(served.base)
        page = alone.open("#/compare")
        page.wait_for_selector(".diff ins")
        assert chosen(alone) == [f"{LONG}/start_greedy", f"{LONG}/final_greedy"]
        picker = page.locator(".picker select").first
        assert picker.get_attribute("title") == f"{LONG}: start greedy"
        assert alone.texts(".picker option")[0] == "reverse_t…xxxxxxxx_seed7: start greedy"
        page = alone.open("#/groups")
        page.wait_for_selector(".row-link")
        assert page.locator(".picker select").first.get_attribute("title") == LONG
        assert alone.texts(".picker option")[0] == "reverse_text…xxxxxxxxxxxxx_seed7"


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


def test_a_recipes_value_is_told_of_the_runs_last_step(tmp_path: Path, new_tab: Opener) -> None:
    run = tmp_path / "a"
    writer = play(run, steps=3)
    write_config(load(RLConfig, ["@", str(RECIPE), "--output_dir", str(run)], {}), run)
    reference = plugins.load(plugins.REFERENCES, "recipes", "the reference")(run)
    assert reference is not None
    curve = reference["curves"]["reward/mean"]
    mid = dict(zip(curve["steps"], curve["mid"], strict=True))
    assert curve["steps"][-1] > 2 and f"{mid[2]:.4g}" != f"{curve['mid'][-1]:.4g}"
    for served in serve(tmp_path, writer, "a"):
        tab = new_tab(served.base)
        page = tab.open("#/curves?m=reward/mean")
        tab.until("document.querySelector('.values')?.innerText.includes('recipe')")
        told = dict(zip(tab.texts(".values dt"), tab.texts(".values dd"), strict=True))
        assert told["step"] == "2" and float(told["recipe reverse_text"]) == pytest.approx(mid[2], rel=1e-3)
        page.locator(".plot").focus()
        page.keyboard.press("ArrowRight")
        tab.until("document.querySelector('.values-step dd').innerText === '0'")
        told = dict(zip(tab.texts(".values dt"), tab.texts(".values dd"), strict=True))
        assert float(told["recipe reverse_text"]) == pytest.approx(mid[0], rel=1e-3)
