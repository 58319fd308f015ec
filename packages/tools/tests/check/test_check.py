"""`slimrl check` finds faults by their names, and none where there is none."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packages.tools.tests.check import planted
from packages.tools.tests.check.reports import environments_of, problems, run_json
from slimrl.cli import run
from slimrl.config.rollout import LimitsConfig
from slimrl.environments.base import complete
from slimrl.models.chat.stand_in import stand_in_chat
from slimrl.types import Message, Script, Task
from slimrl_tools.check.run import Check
from slimrl_tools.check.trial import Trial
from slimrl_tools.findings import Finding, Level
from tests.environments.dataset.files import write_rows
from tests.environments.dataset.test_constant import MOSTLY_2

CHAT = stand_in_chat()
FILE = planted.__file__


def checked(taskset: Any, num_examples: int = 2, timeout_s: float = 1.5) -> list[Finding]:
    """What is found where all places are this process."""
    trial = Trial(taskset, CHAT, LimitsConfig(episode_timeout_s=timeout_s), seed=0)
    places = taskset, lambda: taskset, lambda seed: taskset
    return Check(trial, *places, "train", num_examples).run()


WAITING = ("sleeps", "hangs", "never ends")  # these take seconds
FIRST = {subject: fault for fault, subject in reversed(planted.FAULTS.items())}  # of the faults with a subject


def mark_of(fault: str, subject: str) -> pytest.MarkDecorator:
    return pytest.mark.slow if fault == FIRST[subject] and fault not in WAITING else pytest.mark.nightly


@pytest.mark.parametrize(
    ("fault", "subject"),
    [pytest.param(fault, subject, marks=mark_of(fault, subject)) for fault, subject in planted.FAULTS.items()],
)
def test_a_planted_fault_is_found_and_no_other(fault: str, subject: str) -> None:
    findings = checked(planted.Double(fault))
    assert problems(findings) == {subject}
    assert all(one.remedy for one in findings if one.level is Level.PROBLEM)


@pytest.mark.slow
@pytest.mark.parametrize("good", ["", "two turns", "tool"])
def test_the_environment_in_which_faults_are_planted_has_none(good: str) -> None:
    findings = checked(planted.Double(good))
    assert {one.level for one in findings} == {Level.OK}
    told = {one.subject for one in findings} | {"hang", "reward"}  # which are told only where they are
    assert {*planted.FAULTS.values()} - told <= {"tools"}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "subject"), [*planted.FAULTS_OF_PROCESSES.items(), *[*planted.FAULTS.items()][::12]])
def test_a_planted_fault_is_found_by_the_command(fault: str, subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [f"{FILE}:Double", "--args.fault", fault, "--num_examples", "2", "--episode_timeout_s", "2"]
    status, findings = run_json(argv, capsys)
    assert (status, problems(findings)) == (1, {subject})


@pytest.mark.slow
def test_an_environment_of_ones_own_is_tried_in_processes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, findings = run_json([f"{FILE}:Double", "--num_examples", "2"], capsys)
    assert status == 0
    assert {one.level for one in findings} == {Level.OK}


def test_without_scripts_notes_say_what_cannot_be_told() -> None:
    class Bare:
        def __init__(self) -> None:
            self.tasks, self.environment = planted.Double().tasks, planted.Double().environment

    findings = checked(complete(Bare()))
    assert {one.subject for one in findings if one.level is Level.NOTE} == {"expert"}
    assert problems(findings) == set()


class KnowsItsConstant(planted.Double):
    """It pays for silence. Its script `constant` is silent where the number is a multiple of `share`."""

    def __init__(self, share: int) -> None:
        super().__init__("pays for silence")
        self.share = share

    @property
    def scripts(self) -> dict[str, Script]:
        return {**super().scripts, "constant": self.be_silent}

    def be_silent(self, task: Task, seed: int) -> list[Message]:
        *opening, _ = self.solve(task, seed)
        return [*opening, {"role": "assistant", "content": "" if task.data["number"] % self.share == 0 else "no"}]


@pytest.mark.parametrize(("share", "found"), [(1, set()), (1000, {"doing nothing"})])
def test_silence_is_a_note_where_the_constant_answer_earns_as_much(share: int, found: set[str]) -> None:
    findings = checked(KnowsItsConstant(share))
    (silence,) = [one for one in findings if one.subject == "doing nothing"]
    assert problems(findings) == found
    assert silence.level is (Level.PROBLEM if found else Level.NOTE)


class CallsWrongly(planted.Double):
    """Its expert makes a call that is answered by an error in this frame, and then gives the right answer."""

    def __init__(self, frame: str) -> None:
        super().__init__("tool")
        self.frame = frame

    def solve(self, task: Task, seed: int) -> list[Message]:
        *opening, answer = super().solve(task, seed)
        call: Message = {"role": "assistant", "content": '<tool_call>{"name": "twice", "arguments": {}}</tool_call>'}
        return [*opening, call, {"role": "tool", "content": self.answer("")}, answer]

    def answer(self, reply: str) -> str:
        return self.frame.format("Error: `number` is missing.")


@pytest.mark.parametrize("frame", ["{}", "<result>\n{}\n</result>", "<output>\n{}\n</output>"])
def test_a_call_of_the_expert_that_is_answered_by_an_error_is_a_note(frame: str) -> None:
    (note,) = [one for one in checked(CallsWrongly(frame), num_examples=1) if one.level is not Level.OK]
    assert (note.subject, note.level) == ("expert's calls", Level.NOTE)
    assert "a call of the expert was answered by `Error: `number` is missing.` on task" in note.found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "check needs an environment"),
        (["reverse-txt"], "Did you mean `reverse-text`?"),
        (["reverse-text", "--args.stile", "word"], "stile"),
        (["reverse-text", "--split", "validation"], "there are no tasks in split = validation"),
        (["no_such_file.py:Market"], "does not exist"),
        (["reverse-text", "--model.name", "./no_such_model"], "no such file or directory"),
    ],
)
def test_a_mistake_is_told_in_a_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", *argv]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_table_shows_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", f"{FILE}:Double", "--args.fault", "pays for silence", "--num_examples", "2"]) == 1
    out = capsys.readouterr().out
    assert "doing nothing" in out and "-> Give nothing without an answer" in out and "1 problem" in out


VARIANTS = [
    *(["reverse-text", "--args.style", style] for style in ("code", "word")),
    ["dataset", "--args.path", "examples/your_task/questions.jsonl", "--args.reward", "number"],
]


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["reverse-text"], marks=pytest.mark.slow),
        *(pytest.param(argv, id=" ".join(argv), marks=pytest.mark.nightly) for argv in VARIANTS),
    ],
)
def test_an_environment_of_the_core_has_no_fault(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = run_json([*argv, "--num_examples", "5"], capsys)
    assert (status, problems(findings)) == (0, set())


def test_the_variants_have_every_environment_of_the_core() -> None:
    assert {argv[0] for argv in VARIANTS} == environments_of("slimrl")


SLOW = """
import functools, time
from slimrl import Task
class Slow:
    @functools.cache
    def tasks(self, split):
        time.sleep(0.2)
        return [Task(f"{split}/0", {})]
    def environment(self, task): return self
"""


def test_the_time_of_the_first_call_is_measured_in_this_process_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.setattr("slimrl_tools.check.tasks.LONG_S", 0.5)
    _, found = run_json([f"{tmp_path / 'slow.py'}:Slow", "--worker", "none"], capsys)
    (time_of_tasks,) = (one for one in found if one.subject == "time of tasks")
    assert time_of_tasks.level is Level.NOTE, time_of_tasks


@pytest.mark.nightly
def test_the_reward_of_the_best_constant_answer_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", MOSTLY_2)
    _, found = run_json(["--env", json.dumps([{"id": "dataset", "args": {"path": str(path)}}])], capsys)
    (note,) = (one for one in found if one.subject == "constant answer")
    assert note.level is Level.NOTE
    assert re.match(r"the best one earns 0\.[67]\d* on average, the expert 1", note.found)


SPINS = """
from slimrl import Task, Turn

class Spins:
    def tasks(self, split):
        return [Task(f"{split}/0", {})]
    def environment(self, task):
        return self
    async def start(self):
        return [{"role": "user", "content": "?"}]
    async def step(self, reply):
        print("spinning", flush=True)
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_an_environment_holds(tmp_path: Path) -> None:
    file = tmp_path / "spins.py"
    file.write_text(SPINS)
    argv = [sys.executable, "-m", "slimrl", "check", f"{file}:Spins", "--worker", "none"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout and any(line == "spinning\n" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode not in (0, None)
