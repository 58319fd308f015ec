"""`slimrl play` from the person's side: what is shown, what counts, and how one leaves."""

import io
import re
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from slimrl.config.play import PlayConfig
from slimrl.config.reading.load import load
from slimrl.errors import UserError
from slimrl.types import Message, Task
from slimrl_tools.commands.play import as_read, in_order, run_play

REVERSE = ["--id", "reverse-text"]
OWN = """
import asyncio
from slimrl.types import Task, Turn


class Own:
    def __init__(self, fault=""): self.fault = fault
    def tasks(self, split):
        return [] if split == "validation" else [Task(f"{split}/{n}", {"n": n}) for n in range(5)]
    def environment(self, task): return Episode(task, self.fault)


class Episode:
    def __init__(self, task, fault): self.task, self.fault, self.turns = task, fault, 0
    async def start(self):
        if self.fault == "start raises":
            raise ZeroDivisionError("by zero")
        return [{"role": "user", "content": f"say {self.task.data['n']}"}]
    async def step(self, reply):
        self.turns += 1
        if self.fault == "hangs":
            await asyncio.Event().wait()
        if self.turns == 1:
            return Turn(done=False, messages=[{"role": "user", "content": f"you said {reply}"}], reward=0.25)
        return Turn(done=True, reward=0.5, metrics={"turns": self.turns})
    async def close(self): print("closed")
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return f"{path}:Own"


def played(argv: list[str], typed: str) -> str:
    """What the person saw."""
    with redirect_stdout(io.StringIO()) as screen, patch("sys.stdin", io.StringIO(typed)):
        assert run_play(load(PlayConfig, argv, {})) == 0
    return screen.getvalue()


def test_a_whole_game_of_reverse_text() -> None:
    seen = played([*REVERSE, "--task", "train/w5b4o3t"], "<reversed_text>\nt3o4b5w\n</reversed_text>\n\n")
    assert "`reverse-text`: reverse a text character by character" in seen
    assert re.search(r"Task \d+ of train\n--- system ---\nReverse the text", seen)
    assert "train/w5b4o3t" not in seen.partition("The episode is over")[0]  # an id may be the answer
    assert "--- user ---\nw5b4o3t\n--- you ---\n<reversed_text>\nt3o4b5w\n</reversed_text>\n" in seen
    assert "The episode is over. Reward: 1 (task train/w5b4o3t)\n  exact   1\n  tagged  1\n" in seen
    assert seen.count("\nTask ") == 2  # the next one follows


def test_the_expert_shows_how_and_the_game_goes_on() -> None:
    seen = played([*REVERSE, "--task", "train/w5b4o3t"], "/expert\n/help\na\n\n/quit\n")
    assert "--- expert ---\n<reversed_text>t3o4b5w</reversed_text>\n" in seen
    assert seen.count("--- user ---\nw5b4o3t\n") == 1
    assert seen.count("show how a scripted expert") == 2
    assert "Reward: 0 (task" in seen


@pytest.mark.slow
def test_tasks_follow_one_another_and_several_turns_earn_what_they_earn(own: str) -> None:
    seen = played(["--id", own], "/expert\n" + "a\n\nb\n\n" * 5)
    assert 'Own has no script "expert"' in seen and "you said a" in seen
    assert "That earned +0.25, 0.25 so far." in seen
    assert "The episode is over. Reward: 0.75 (task train/" in seen and "  turns  2\n" in seen
    begun = sorted(line for line in seen.splitlines() if line.startswith("Task "))
    assert begun == [f"Task {n} of train" for n in range(5)]


def await_closed(capsys: pytest.CaptureFixture[str]) -> None:
    """Fails unless the episode is closed, which its worker process prints, and a thread copies."""
    shown, deadline = "", time.monotonic() + 30
    while "closed" not in shown and time.monotonic() < deadline:
        time.sleep(0.01)
        shown += capsys.readouterr().err
    assert shown == "closed\n"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("start raises", "environment_error): ZeroDivisionError: by zero"),
        ("hangs", "timeout): the environment took longer than episode_timeout_s = 0.2 s"),
    ],
)
def test_a_failing_episode_says_why_and_is_closed(
    fault: str, reason: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit_s = "0.2" if fault == "hangs" else "30"  # the others must not run into it on a busy machine
    seen = played(["--id", own, "--args.fault", fault, "--episode_timeout_s", limit_s], "a\n\n")
    assert f"The episode failed; training would drop it ({reason}" in seen
    await_closed(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["", "/quit\n", "a\n\n/quit\n", "a\n\n", "a\n\nhalf a reply\n/quit\n"])
def test_leaving_in_the_middle_closes_the_episode(typed: str, own: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen = played(["--id", own], typed)
    assert "Reward:" not in seen
    await_closed(capsys)


def test_the_seed_decides_the_order_and_a_task_goes_first() -> None:
    tasks = [Task(f"train/{n}", {}) for n in range(20)]

    def order(*argv: str) -> list[str]:
        return [task.id for task in in_order(tasks, load(PlayConfig, [*REVERSE, *argv], {}).config)]

    assert order() == order() != order("--seed", "1")
    assert sorted(order()) == sorted(task.id for task in tasks)
    for name in ("train/7", "7"):
        assert order("--task", name) == ["train/7", *(task for task in order() if task != "train/7")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--id", "reverse-txt"], "there is no environment `reverse-txt`. Did you mean `reverse-text`?"),
        ([*REVERSE, "--args.stile", "word"], "unexpected keyword argument 'stile'. Did you mean `style`?"),
        ([*REVERSE, "--split", "validation"], "has no tasks in split = validation. Try another `--split`: train, "),
        ([*REVERSE, "--task", "10000"], "task = 10000 is no task of `reverse-text` in split = train. It has 10000, "),
        ([*REVERSE, "--task", "nonsense"], "with the numbers 0 to 9999 and ids such as `train/"),
        ([], "id is not set"),
    ],
)
def test_a_mistake_is_named(argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        played(argv, "")
    assert message in str(error.value)


def test_messages_are_shown_as_the_policy_reads_them() -> None:
    long = "word " * 100
    cut: Message = {
        "role": "tool",
        "content": f"<result>{long}</result>",
        "excerpt": {"begin": 8, "end": 8 + len(long), "max_tokens": 10},
    }
    shown = as_read(cut)
    assert shown.startswith("<result>word word")
    assert "more characters were left out]</result>" in shown
    assert len(shown) < 120
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"properties": {"query": {}}}}}]
    assert "\nsearch(query)" in as_read({"role": "system", "content": "Search.", "tools": tools})
    assert as_read({"role": "user", "content": "as it is"}) == "as it is"


def test_a_game_begins_without_loading_a_model() -> None:
    program = (
        "import sys; from slimrl.cli import run; run(['play', 'reverse-text']); "
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], input="", text=True, capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
