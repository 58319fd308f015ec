"""The analysis of questions, on runs whose numbers are known."""

import math
import random
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Message, Rollout
from slimrl_envs.matching_game.analysis import (
    MEASURES,
    analyze,
    compare_ends,
    correlate,
    draw,
    measure_game,
    read_run,
)

pytestmark = pytest.mark.slow
SCRIPT = str(Path(__file__).parents[4] / "scripts" / "analyze_questions.py")


def game(
    num_questions: int, reward: float, task_id: str = "train/0", num_after: int = 0, proposes: bool = True
) -> Rollout:
    """A finished game of so many questions and a proposal, and more questions and another proposal if it was lost."""
    asked = [f"[message] What is your score for Ava and number{k}{'?' * (1 + k % 2)}" for k in range(num_questions)]
    again = [f"[message] And for Daniel and number{k}?" for k in range(num_after)]
    proposal = ["[propose] Proposal:\nBLEU: Ava"]
    messages: list[Message] = [{"role": "user", "content": "Is this a question of the policy?"}]
    for reply in (*asked, *(proposal if proposes else ()), *again, *(proposal if again else ())):
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": "[message] Ava for BLEU: 3. Which one else?"})
    questions = float(num_questions + num_after)
    metrics = {"agreed": 1.0, "questions": questions, "distinct_questions": questions, "messages": 1.0, "own_view": 0.7}
    return Rollout(task_id, (), (), (), (), reward, (), tuple(messages), metrics)


FAILED = replace(game(1, 0.5), reward=math.nan, failure="partner_timeout", metrics={})
OTHER = replace(game(1, 0.5), metrics={"num_words": 3.0})


def recorded(path: Path, games: Callable[[int], list[Rollout]], num_steps: int = 20) -> Path:
    for step in range(1, num_steps + 1):
        write_rollouts(RunDir(path).rollouts_of(step), [RolloutRecord(one, (0.0,), "") for one in games(step)])
    return path


def learner(seed: int) -> Callable[[int], list[Rollout]]:
    """Asks more as training goes on, and earns more by it."""
    rng = random.Random(seed)

    def games(step: int) -> list[Rollout]:
        asked = [max(0, round(step / 5 + rng.gauss(0, 1))) for _ in range(8)]
        rewards = [min(1.0, 0.5 + 0.05 * num + 0.02 * rng.random()) for num in asked]
        return [
            game(num, reward, f"train/{k // 2}") for k, (num, reward) in enumerate(zip(asked, rewards, strict=True))
        ]

    return games


def test_a_correlation_within_groups_by_hand(tmp_path: Path) -> None:
    """Four games of each of three tasks. Less the means of their groups, questions are -1, -1, 1, 1 and rewards -0.1,
    0, 0, 0.1: a coefficient of the root of a half."""

    def games(step: int) -> list[Rollout]:
        shapes = ((1, -0.1), (1, 0.0), (3, 0.0), (3, 0.1))
        return [game(num + k, 0.5 + 0.1 * k + extra, f"train/{k}") for k in range(3) for num, extra in shapes]

    assert correlate([read_run(recorded(tmp_path, games, 1))]).mean == pytest.approx(math.sqrt(0.5))


def test_the_roles_of_self_play_are_looked_at_apart(tmp_path: Path) -> None:
    """The second player asks three more, which has nothing to do with the reward; within a role all of it has."""

    def games(step: int) -> list[Rollout]:
        asked = [1 + (step + k) % 3 for k in range(4)]
        roles = (("player 1", 0), ("player 2", 3))
        return [replace(game(num + more, 0.3 * num), role=role) for num in asked for role, more in roles]

    run = read_run(recorded(tmp_path, games))
    assert correlate([run]).mean == pytest.approx(1.0)
    assert compare_ends(run, "before")[-1].num == 16  # groups, of both roles


def test_a_game_is_counted_by_what_the_policy_said_without_its_thoughts() -> None:
    one = game(3, 0.9)
    one = replace(one, metrics={**one.metrics, "questions": 5.0, "distinct_questions": 4.0})
    assert [measure_game(one)[name] for name in MEASURES] == [3, 1.0, 4.0, 5.0, 3, 3, 3, 4, 0.9]
    thinking: Message = {"role": "assistant", "content": "<think>What? Why? [message]</think>\n[message] Ava for BLEU?"}
    assert measure_game(replace(one, messages=(thinking,)))["marks"] == 1


def test_everything_is_written_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    more = [FAILED, OTHER, OTHER]
    runs = []
    for seed in range(2):
        games = learner(seed)
        runs.append(recorded(tmp_path / f"seed{seed}", lambda step: [*games(step), *more], 5 + 10 * seed))  # noqa: B023
    (tmp_path / "seed0/rollouts/step_000003.jsonl.bak").write_text("a copy is not that step")
    picture, report = analyze(runs, tmp_path / "out")
    assert picture.read_bytes()[:4] == b"\x89PNG"
    text = report.read_text()
    assert all(f"## {run.name}\n" in text for run in runs)
    assert all(f"| {label} |" in text for label in MEASURES.values())
    assert "40 games; 15 rollouts left out." in text and "with the reward within groups: 0." in text


@pytest.mark.parametrize("proposes", [True, False])
def test_runs_without_any_variation_are_drawn_and_written_too(proposes: bool, tmp_path: Path) -> None:
    log_dir = recorded(tmp_path / "run", lambda step: [game(0 if proposes else 1, 0.0, proposes=proposes)], num_steps=2)
    *_, report = analyze([log_dir], tmp_path / "out")
    assert "within groups: none: too few games have it, or it does not vary" in report.read_text()
    assert all(axes.get_ylim()[0] == 0 and axes.get_xlabel() for axes in draw([read_run(log_dir)]).axes)


@pytest.mark.parametrize(("lines", "number"), [(None, 0), ([FAILED, OTHER], 2)])
def test_a_directory_without_games_is_a_clear_error(lines: list[Rollout] | None, number: int, tmp_path: Path) -> None:
    if lines is not None:
        recorded(tmp_path, lambda step: lines, 1)
    with pytest.raises(UserError, match=f"has no finished game in rollouts/.*: {number} rollouts failed, or are not"):
        analyze([tmp_path], tmp_path / "out")


def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = recorded(tmp_path / "run", learner(0), num_steps=2), tmp_path / "out"
    monkeypatch.syspath_prepend(Path(SCRIPT).parent)
    for log_dir, status, said in ((run, 0, "over_training.png"), (out, 2, "error: ")):
        monkeypatch.setattr(sys, "argv", [SCRIPT, "--log_dir", str(log_dir), "--output_dir", str(out)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(SCRIPT, run_name="__main__")
        assert int(ended.value.code or 0) == status
        told = capsys.readouterr()
        assert said in told.out + told.err and "Traceback" not in told.err
