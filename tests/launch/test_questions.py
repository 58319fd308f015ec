"""The analysis of questions, on runs whose numbers are known."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.launch.question_runs import MEASURES, read_run, values_of
from slimrl.launch.questions import OVERALL, WITHIN, analyze, correlations, difference, main, verdict
from slimrl.monitor.rollouts import RolloutRecord, rollout_file, write_rollouts
from slimrl.types import Message, Rollout

PNG = b"\x89PNG"


def game(num_questions: int, reward: float, task_id: str = "train/0") -> Rollout:
    """A finished game of so many questions and a proposal."""
    replies = [f"[message] What is your score for Ava and BLEU{'?' * (1 + k % 2)}" for k in range(num_questions)]
    messages: list[Message] = [{"role": "user", "content": "Is this a question of the policy?"}]
    for reply in (*replies, "[propose] Proposal:\nBLEU: Ava"):
        messages.append({"role": "assistant", "content": reply})
        messages.append({"role": "user", "content": "[message] Ava for BLEU: 3. Which one else?"})
    num = num_questions + 1
    return Rollout(
        task_id=task_id,
        token_ids_T=(1, 2) * num,
        loss_mask_T=(False, True) * num,
        logprobs_T=(0.0, -0.5) * num,
        versions_T=(-1, 0) * num,
        reward=reward,
        turn_rewards=(0.0,) * num_questions + (reward,),
        messages=tuple(messages),
        metrics={"agreed": 1.0, "questions": float(num_questions), "messages": float(num), "own_view": 0.7},
    )


def failed(rollout: Rollout) -> Rollout:
    return replace(rollout, reward=math.nan, failure="partner_timeout", metrics={})


def recorded(path: Path, games: Callable[[int], list[Rollout]], num_steps: int = 20) -> Path:
    for step in range(1, num_steps + 1):
        write_rollouts(rollout_file(path, step), [RolloutRecord(one, (0.0,), "") for one in games(step)])
    return path


def learner(seed: int) -> Callable[[int], list[Rollout]]:
    """Asks more as training goes on, and earns more by it."""
    rng = random.Random(seed)

    def games(step: int) -> list[Rollout]:
        asked = [max(0, round(step / 5 + rng.gauss(0, 1))) for _ in range(8)]
        return [game(num, min(1.0, 0.5 + 0.05 * num + 0.02 * rng.random())) for num in asked]

    return games


def test_a_run_that_learns_to_ask_is_seen_to(tmp_path: Path) -> None:
    runs = [read_run(recorded(tmp_path / f"seed{seed}", learner(seed))) for seed in range(3)]
    for run in runs:
        assert verdict(difference(run, "questions")) == "asks more"
        assert [len(run.beginning), len(run.end)] == [32, 32]
    found = correlations(runs)
    assert found[OVERALL].low > 0.8 and found[WITHIN].low > 0.8


def test_what_grows_together_for_another_reason_does_not_go_together_within_a_step(tmp_path: Path) -> None:
    rng = random.Random(0)

    def games(step: int) -> list[Rollout]:
        return [game(step // 4 + rng.randrange(3), step / 40 + rng.random() / 4) for _ in range(8)]

    run = read_run(recorded(tmp_path, games))
    found = correlations([run])
    assert found[OVERALL].low > 0.5
    assert found[WITHIN].low < 0 < found[WITHIN].high


def test_a_run_that_does_not_change_is_said_not_to(tmp_path: Path) -> None:
    rng = random.Random(1)
    run = read_run(recorded(tmp_path, lambda step: [game(rng.randrange(4), rng.random()) for _ in range(8)]))
    assert verdict(difference(run, "questions")) == "no clear change"
    fewer = read_run(recorded(tmp_path / "less", lambda step: [game(int(step < 10) + k % 2, 0.5) for k in range(8)]))
    assert verdict(difference(fewer, "questions")) == "asks less"


def test_one_step_is_too_little_to_say_anything_about_training(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path, lambda step: [game(k, 0.5) for k in range(8)], num_steps=1))
    assert verdict(difference(run, "questions")) == "too little to say"


def test_an_episode_is_counted_by_what_the_policy_said(tmp_path: Path) -> None:
    run = read_run(recorded(tmp_path, lambda step: [game(3, 0.9)], num_steps=1))
    assert [values_of(run.episodes, measure) for measure in MEASURES] == [[3.0], [3], [3], [3], [4], [0.9]]


def test_thoughts_are_not_said(tmp_path: Path) -> None:
    thinking = {"role": "assistant", "content": "<think>What? Why? [message]</think>\n[message] Ava for BLEU?"}
    one = replace(game(0, 0.5), messages=(thinking,))
    assert values_of(read_run(recorded(tmp_path, lambda step: [one], 1)).episodes, "marks") == [1]


def test_failures_and_other_environments_are_left_out_and_counted(tmp_path: Path) -> None:
    other = replace(game(1, 0.5), metrics={"num_words": 3.0})
    run = read_run(recorded(tmp_path, lambda step: [game(2, 0.5), failed(game(2, 0.5)), other, other], num_steps=5))
    assert (len(run.episodes), run.num_failed, run.num_others) == (5, 5, 10)


def test_everything_is_written(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"seed{seed}", learner(seed)) for seed in range(2)]
    pictures, texts = (written := analyze(runs, tmp_path / "out"))[:2], written[2:]
    assert [path.read_bytes()[:4] for path in pictures] == [PNG, PNG]
    summary, report = json.loads(texts[0].read_text()), texts[1].read_text()
    assert [run["name"] for run in summary["runs"]] == ["seed0", "seed1"]
    assert summary["runs"][0]["measures"]["questions"]["difference"]["low"] > 0
    assert summary["correlation_of_questions_and_reward"][OVERALL]["num"] == 320
    assert "## seed1: asks more" in report and "160 games, steps 1 to 20." in report


def test_runs_without_any_variation_are_written_too(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", lambda step: [game(0, 0.0), failed(game(0, 0.0))], num_steps=2)
    *_, summary, report = analyze([run], tmp_path / "out")
    assert json.loads(summary.read_text())["correlation_of_questions_and_reward"][OVERALL]["mean"] is None
    assert "does not vary" in report.read_text() and "left out: 2 failed." in report.read_text()


def test_runs_of_different_length_share_a_picture(tmp_path: Path) -> None:
    runs = [recorded(tmp_path / f"{num}", learner(num), num_steps=num) for num in (3, 20)]
    assert analyze(runs, tmp_path / "out")


def test_a_directory_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no directory .*nowhere.*--log_dir"):
        analyze([tmp_path / "nowhere"], tmp_path / "out")


def test_a_directory_without_rollouts_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    with pytest.raises(UserError, match=r"no rollouts/step_\*\.jsonl"):
        analyze([tmp_path], tmp_path / "out")


def test_a_run_of_another_environment_is_a_clear_error(tmp_path: Path) -> None:
    other = replace(game(1, 0.5, "train-7"), metrics={"num_words": 3.0})
    recorded(tmp_path / "run", lambda step: [other])
    with pytest.raises(UserError, match=r"none of which is of `matching-game`.*`train-7`.*num_words"):
        analyze([tmp_path / "run"], tmp_path / "out")


def test_a_run_that_only_failed_is_a_clear_error(tmp_path: Path) -> None:
    recorded(tmp_path / "run", lambda step: [failed(game(1, 0.5))], num_steps=3)
    with pytest.raises(UserError, match="all of its 3 rollouts failed"):
        analyze([tmp_path / "run"], tmp_path / "out")


def test_a_mistake_ends_the_command_with_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--log_dir", str(tmp_path / "nowhere"), "--output_dir", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: there is no directory")
