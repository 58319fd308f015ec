"""Two evaluations, task by task: hand-made episodes, and files on disk."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.eval.compare import compare, compare_saved, find_saved_modes
from slimrl.eval.report import pairs_table
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from tests.eval.episodes import rollout


def episodes(rewards: str, question: str = "q", **metrics: float):
    """One for each character: 1 right, 0 wrong, x failed."""
    made = [
        rollout(f"test/{n}", float(c == "1"), question, failure="judge_timeout" if c == "x" else "", **metrics)
        for n, c in enumerate(rewards)
    ]
    return {each.task_id: each for each in made}


def test_differences_are_paired():
    first, second = episodes("1111100000" * 4), episodes("1100000000" * 4)
    reward, *_ = compare(first, second)
    assert (reward.score, reward.first, reward.second) == ("reward", 0.5, 0.2)
    assert (reward.wins, reward.losses, reward.difference.num) == (12, 0, 40)
    assert reward.p == pytest.approx(2 / 2**12)  # McNemar's exact test: twelve of twelve
    assert reward.difference.mean == pytest.approx(0.3)
    assert 0.1 < reward.difference.low < 0.3 < reward.difference.high < 0.5


def test_the_other_way_round_has_the_other_sign_and_what_failed_in_either_is_left_out_of_both():
    first, second = episodes("1010110001"), episodes("0110001101")
    (there, *_), (back, *_) = compare(first, second), compare(second, first)
    assert there.difference.mean == -back.difference.mean and there.p == back.p
    assert (there.wins, there.losses) == (back.losses, back.wins)
    reward, *_ = compare(episodes("1x110"), episodes("01x10"))
    assert reward.difference.num == 3 and (reward.first, reward.second) == (pytest.approx(2 / 3), pytest.approx(1 / 3))


def test_every_score_of_both_is_compared():
    pairs = compare(episodes("10", tool_calls=3.0, only_here=1.0), episodes("10", tool_calls=5.0))
    by_name = {pair.score: pair for pair in pairs}
    assert set(by_name) == {"reward", "turns", "unfinished", "context_full", "tokens", "tool_calls"}
    calls = by_name["tool_calls"]
    assert calls.difference.mean == -2.0 and math.isnan(calls.difference.low)  # no spread, so no interval
    assert by_name["reward"].p == 1.0


def save(directory: Path, name: str, rewards: str) -> Path:
    path = directory / "held_out" / f"{name}.jsonl"
    write_rollouts(path, [RolloutRecord(each, (), "text") for each in episodes(rewards).values()])
    return path


def test_saved_evaluations_and_training_runs_are_compared(tmp_path: Path):
    save(tmp_path / "eval", "eval_greedy", "1100")
    save(tmp_path / "eval", "eval_sampled_0.7", "1000")
    save(tmp_path / "eval", "vs_random_scripted", "0000")
    save(tmp_path / "rl", "start_greedy", "0000")
    save(tmp_path / "rl", "final_greedy", "1110")
    assert list(find_saved_modes(tmp_path / "eval")) == ["greedy", "sampled_0.7"]
    ((mode, (reward, *_)),) = compare_saved(tmp_path / "rl", tmp_path / "eval")
    assert (mode, reward.first, reward.second) == ("greedy", 0.75, 0.5)
    files = (tmp_path / "eval" / "held_out" / "eval_greedy.jsonl", tmp_path / "rl" / "held_out" / "start_greedy.jsonl")
    ((_, (reward, *_)),) = compare_saved(*files)
    assert reward.difference.mean == 0.5


def test_what_cannot_be_compared_is_said(tmp_path: Path):
    with pytest.raises(UserError, match="different tasks: test/0 is 'q test/0' in one and 'other test/0'"):
        compare(episodes("11"), episodes("11", question="other"))
    with pytest.raises(UserError, match="nothing can be compared: of 1 and 1 episodes, 1 are of the same tasks"):
        compare(episodes("x"), episodes("1"))
    with pytest.raises(UserError, match="has no saved evaluation"):
        list(compare_saved(tmp_path, tmp_path))
    save(tmp_path / "a", "eval_greedy", "1")
    save(tmp_path / "b", "eval_sampled", "1")
    with pytest.raises(UserError, match="name two files"):
        list(compare_saved(tmp_path / "a", tmp_path / "b"))


def test_each_of_several_environments_is_compared():
    def of(**rewards: str):
        return {
            f"{env}/{each.task_id}": replace(each, task_id=f"{env}/{each.task_id}")
            for env, text in rewards.items()
            for each in episodes(text).values()
        }

    pairs = {pair.score: pair for pair in compare(of(a="11", b="00x"), of(b="10111", a="00"))}
    assert [name for name in pairs if name.startswith("reward")] == ["reward", "reward, a", "reward, b"]
    assert (pairs["reward, a"].first, pairs["reward, a"].second, pairs["reward, a"].difference.num) == (1.0, 0.0, 2)
    assert (pairs["reward, b"].losses, pairs["reward, b"].difference.num, pairs["reward"].difference.num) == (1, 2, 4)
    assert [row[0] for row in pairs_table("x", "y", list(pairs.values())).rows[1:4]] == [*list(pairs)[:3]]
