"""`slimrl check` finds faults by their names, and none where there is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from slimrl.cli import run
from slimrl.environments.find import BUILTIN
from slimrl.eval.check.run import Check, Places, Plan
from slimrl.models.chat.stand_in import stand_in_chat
from slimrl.monitor.findings import Finding, Level
from slimrl.rollout.episode import EpisodeLimits
from tests.eval.check import planted

CHAT = stand_in_chat()
FILE = planted.__file__


def checked(taskset: Any, num_examples: int = 2, timeout_s: float = 1.5) -> list[Finding]:
    """What is found where all places are this process."""
    places = Places(taskset, taskset, lambda: taskset, lambda seed: taskset)
    plan = Plan("train", num_examples, CHAT, EpisodeLimits(10, 1 << 22, timeout_s))
    return Check(places, plan, lambda: None).run()


def problems(findings: list[Finding]) -> set[str]:
    return {one.subject for one in findings if one.level is Level.PROBLEM}


def run_json(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Finding]]:
    status = run(["check", *argv, "--json"])
    (report,) = json.loads(capsys.readouterr().out)
    return status, [Finding(**{**one, "level": Level(one["level"])}) for one in report["findings"]]


WAITING = ("Sleeps", "Hangs", "NeverEnds")  # these take seconds
FIRST = {subject: fault for fault, subject in reversed(planted.FAULTS.items())}  # of the faults with a subject


def mark_of(fault: type, subject: str) -> pytest.MarkDecorator:
    is_quick = fault is FIRST[subject] and fault.__name__ not in WAITING
    return pytest.mark.slow if is_quick else pytest.mark.nightly


@pytest.mark.parametrize(
    ("fault", "subject"),
    [
        pytest.param(fault, subject, id=fault.__name__, marks=mark_of(fault, subject))
        for fault, subject in planted.FAULTS.items()
    ],
)
def test_a_planted_fault_is_found_and_no_other(fault: type, subject: str) -> None:
    findings = checked(fault())
    assert problems(findings) == {subject}
    assert all(one.remedy for one in findings if one.level is Level.PROBLEM)


@pytest.mark.slow
@pytest.mark.parametrize("good", [planted.Double, planted.TwoTurns, planted.WithTool])
def test_the_environment_in_which_faults_are_planted_has_none(good: type) -> None:
    findings = checked(good())
    assert {one.level for one in findings} == {Level.OK}
    told = {one.subject for one in findings} | {"hang", "reward"}  # which are told only where they are
    assert {*planted.FAULTS.values()} - told <= {"tools"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "subject"), planted.FAULTS_OF_PROCESSES.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_fault_that_only_processes_show_is_found(
    fault: type, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, findings = run_json([f"{FILE}:{fault.__name__}", "--num_examples", "2"], capsys)
    assert status == 1
    assert problems(findings) == {subject}


@pytest.mark.slow
def test_an_environment_of_ones_own_is_tried_in_processes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, findings = run_json([f"{FILE}:Double", "--num_examples", "2"], capsys)
    assert status == 0
    assert {one.level for one in findings} == {Level.OK}


def test_without_scripts_notes_say_what_cannot_be_told() -> None:
    class Bare:
        def __init__(self) -> None:
            self.tasks, self.environment = planted.Double().tasks, planted.Double().environment

    findings = checked(Bare())
    assert {one.subject for one in findings if one.level is Level.NOTE} == {"expert"}
    assert problems(findings) == set()


def test_an_environment_is_named_in_every_way(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("reverse-text --args.style word", "--env.0.id reverse-text --env.0.args.style word"):
        assert run(["check", *words.split(), "--dry-run"]) == 0
        out = capsys.readouterr().out
        assert 'id = "reverse-text"' in out and 'args = {style = "word"}' in out


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
    assert run(["check", f"{FILE}:PaysForSilence", "--num_examples", "2"]) == 1
    out = capsys.readouterr().out
    assert "doing nothing" in out and "-> Give nothing without an answer" in out and "1 problem" in out


def test_a_built_in_environment_has_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = run_json(["alphabet-sort", "--num_examples", "5"], capsys)
    assert (status, problems(findings)) == (0, set())


WIKI = ["wiki-search", "--args.num_pages", "200", "--args.num_train", "40", "--args.num_test", "10"]
GAME = ["matching-game", "--args.num_train", "30", "--args.num_test", "10"]
VARIANTS = [
    *(["reverse-text", "--args.style", style] for style in ("code", "spelled", "word")),
    ["alphabet-sort", "--args.restate", "true", "--args.num_examples", "3", "--args.key_by_turn", "true"],
    ["wordle"],
    ["wordle", "--args.spelled", "true", "--args.hints", "true"],
    ["wordle", "--args.opened", "true", "--args.num_answers", "200"],
    *([*GAME, "--args.n", "3", *more] for more in (["--args.role", "2"], ["--args.partner", "self"])),
    [*GAME, "--args.n", "3", "--args.notes", "true", "--args.thoughts", "true"],
    *([*WIKI, "--args.format", form] for form in ("tags", "native", "code")),
    [*WIKI, "--args.hops", "2"],
    ["dataset", "--args.path", "examples/your_task/questions.jsonl", "--args.reward", "number"],
]


@pytest.mark.nightly
@pytest.mark.parametrize("argv", VARIANTS, ids=" ".join)
def test_no_variant_of_a_built_in_environment_has_a_fault(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, findings = run_json([*argv, "--num_examples", "5"], capsys)
    assert (status, problems(findings)) == (0, set())


def test_the_variants_have_every_built_in_environment() -> None:
    assert {argv[0] for argv in VARIANTS} == set(BUILTIN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "subject"), [*planted.FAULTS.items()][::12], ids=lambda value: getattr(value, "__name__", "")
)
def test_a_planted_fault_is_found_by_the_command(fault: type, subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [f"{FILE}:{fault.__name__}", "--num_examples", "3", "--episode_timeout_s", "2"]
    status, findings = run_json(argv, capsys)
    assert (status, problems(findings)) == (1, {subject})
