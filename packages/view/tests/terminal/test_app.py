import asyncio
import math
import subprocess
import sys

import pytest
from textual.widgets import DataTable, Label, Sparkline, Static

from packages.view.tests.made import indexed, make_run, record_of, refresh, write_step
from slimrl.errors import visible
from slimrl_view.api import Api
from slimrl_view.terminal import app as terminal
from slimrl_view.terminal.app import Viewer
from slimrl_view.terminal.tokens import conversation, largest, style_of
from tests.tiny import tiny_tokenizer

pytestmark = pytest.mark.slow

HOSTILE = "[red]no markup[/red] \x1b[2J \u202e"


def play(paths, keys, then):
    """Open the viewer, press keys, and look at it."""
    runs = [indexed(path) for path in paths]

    async def run():
        viewer = Viewer(Api(runs), [one.directory.id for one in runs])
        async with viewer.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            await then(viewer, pilot, runs)

    asyncio.run(run())


def cells(viewer, table):
    found = viewer.screen.query_one(table, DataTable)
    return [[str(cell) for cell in found.get_row_at(number)] for number in range(found.row_count)]


def label(viewer, name):
    return str(viewer.screen.query_one(name, Label).content)


@pytest.fixture
def path(tmp_path):
    tokenizer = tiny_tokenizer()
    run = make_run(tmp_path / "run")
    tokenizer.save_pretrained(run / "tokenizer")
    ids = tuple(tokenizer.encode(f"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n{HOSTILE}<|im_end|>"))
    begin = len(tokenizer.encode("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"))
    mask = tuple(number >= begin for number in range(len(ids)))
    record = record_of(
        f"train/{HOSTILE}", HOSTILE, 1.0, 0.75,
        token_ids_T=ids, loss_mask_T=mask, logprobs_T=tuple(-0.1 * sampled for sampled in mask),
        versions_T=tuple(2 if sampled else -1 for sampled in mask),
    )  # fmt: skip
    write_step(run, 2, [record, record_of("train/z", reward=0.0, failure="timeout")])
    return run


def test_one_goes_from_steps_to_groups_to_tokens_and_back(path):
    async def look(viewer, pilot, runs):
        assert [row[0] for row in cells(viewer, "#steps")] == [
            "step 2",
            "step 1",
            "step 0",
            "start, greedy",
            "final, greedy",
        ]
        assert cells(viewer, "#steps")[1][1] == "0.75"
        assert [*viewer.screen.query_one("#curve-0", Sparkline).data] == [0.25, 0.75]
        await pilot.press("enter")
        await pilot.pause()
        rows = {row[0]: row for row in cells(viewer, "#groups")}
        assert rows[visible(f"train/{HOSTILE}")][1] == "1.000"
        assert rows["train/z"][4] == "1"
        await pilot.press("enter")
        await pilot.pause()
        assert cells(viewer, "#rollouts")[0][-1] == visible(HOSTILE)
        shown = str(viewer.screen.query_one("#tokens", Static).content)
        assert visible(HOSTILE) in shown and "\x1b" not in shown and "assistant · reply" in shown
        assert label(viewer, "#legend").startswith("advantage: green up to +0.75")
        await pilot.press("c")
        await pilot.pause()
        assert label(viewer, "#legend").startswith("logprob: blue")
        await pilot.press("c")
        await pilot.pause()
        assert label(viewer, "#legend") == "log_ratio was not recorded for this rollout"
        for _ in range(4):  # further back than there is
            await pilot.press("escape")
            await pilot.pause()
        assert viewer.screen.query_one("#steps", DataTable).row_count == 5

    play([path], [], look)


def test_a_run_that_goes_on_is_followed_and_the_cursor_stays(path, monkeypatch):
    monkeypatch.setattr(terminal, "POLL_S", 0.05)

    async def look(viewer, pilot, runs):
        write_step(path, 3, [record_of("train/new")])
        refresh(runs[0])
        for _ in range(100):
            await pilot.pause(0.05)
            if viewer.screen.query_one("#steps", DataTable).row_count == 6:
                break
        table = viewer.screen.query_one("#steps", DataTable)
        assert (cells(viewer, "#steps")[0][0], table.cursor_row) == ("step 3", 2)

    play([path], ["down"], look)


def test_an_evaluation_is_opened_like_a_step(path):
    async def look(viewer, pilot, runs):
        assert [row[0] for row in cells(viewer, "#groups")] == ["reverse-text/test/a"]

    play([path], ["down"] * 4 + ["enter"], look)


def test_the_next_run_begins_at_its_steps(path, tmp_path):
    make_run(tmp_path / "other")

    async def look(viewer, pilot, runs):
        assert label(viewer, "#head") == "other: 2 steps with rollouts"
        await pilot.press("n")
        await pilot.pause()
        assert label(viewer, "#head") == "run: 3 steps with rollouts"

    play([path, tmp_path / "other"], ["enter", "enter", "n"], look)


def test_a_run_without_a_tokenizer_shows_its_messages(tmp_path):
    async def look(viewer, pilot, runs):
        assert "a question" in str(viewer.screen.query_one("#tokens", Static).content)
        assert "has saved no tokenizer" in label(viewer, "#legend")

    play([make_run(tmp_path / "run")], ["enter", "enter"], look)


def test_a_colour_is_stronger_the_farther_a_value_is_from_0():
    shades = [style_of(value, 1.0, True).bgcolor.triplet.green for value in (0.2, 0.6, 1.0)]
    assert shades == sorted(shades)
    assert style_of(1.0, 1.0, True).bgcolor != style_of(-1.0, 1.0, True).bgcolor
    assert {style_of(value, 1.0, True).bgcolor for value in (None, math.nan, 0.0)} == {None}
    assert style_of(1.0, 0.0, False).bgcolor is None
    assert largest([None, -2.0, math.inf, 1.0]) == 2.0 and largest(None) == 0.0


def test_each_token_has_the_colour_of_its_value():
    rollout = {
        "tokens": {"text": ["q", "good", "bad"], "mask": [0, 1, 1], "advantage": [None, 1.0, -1.0]},
        "segments": [
            {"begin": 0, "end": 1, "role": "user", "kind": "prompt"},
            {"begin": 1, "end": 3, "role": "assistant", "kind": "reply"}],
    }  # fmt: skip
    text = conversation(rollout, "advantage")
    colours = {text.plain[span.start : span.end]: span.style.bgcolor for span in text.spans}
    assert colours["q"] is None
    assert colours["good"] == style_of(1.0, 1.0, True).bgcolor != colours["bad"]


def test_without_the_extra_the_command_names_it(tmp_path):
    make_run(tmp_path / "run")
    program = "import sys; sys.modules['textual'] = None; from slimrl.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "view", str(tmp_path / "run"), "--terminal"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert "needs the package textual" in result.stderr and "slimrl[terminal]" in result.stderr
