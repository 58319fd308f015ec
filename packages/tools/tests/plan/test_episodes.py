"""Episodes that a run has recorded, as the model plays them."""

from pathlib import Path

import pytest

from packages.tools.tests.plan.made import group, uneven
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Rollout, StopReason
from slimrl_tools.plan.episodes import (
    RecordedEpisodes,
    Turn,
    episode_of,
    group_of,
    read_episodes,
)
from slimrl_tools.plan.workload import Row


def rollout(token_ids: list[int], mask: str, env_s: tuple[float, ...] = (), failure: str = "") -> Rollout:
    """A rollout whose mask is written as zeros and ones."""
    marks = tuple(mark == "1" for mark in mask)
    turns = mask.replace("0", " ").split()
    zeros = (0.0,) * len(marks)
    return Rollout(
        "task",
        tuple(token_ids),
        marks,
        zeros,
        (0,) * len(marks),
        0.0,
        turn_rewards=(0.0,) * len(turns),
        failure=failure,
        stop_reason=StopReason.FAILED if failure else StopReason.DONE,
        env_s=env_s,
    )


def write(run_dir: Path, step: int, draws: int, env_s: tuple[float, ...] = (0.0, 1.5)) -> None:
    """A step of groups of two, every other one without a signal."""
    records = [
        RolloutRecord(rollout([1, 2, 3, 4], "0011", env_s), (1.0,), "", "e", 10 * step + draw, draw % 2 == 0)
        for draw in range(draws)
        for _ in range(2)
    ]
    RunDir(run_dir).rollouts_of(step).parent.mkdir(parents=True, exist_ok=True)
    write_rollouts(RunDir(run_dir).rollouts_of(step), records)


def test_an_episode_has_what_was_read_sampled_and_waited_for_in_each_turn() -> None:
    played = episode_of(rollout([5, 6, 7, 8, 9, 5, 10, 7, 11, 9], "0001100011", (0.25, 0.5, 2.0)))
    assert played == (Turn(0, 0, 0.25), Turn(3, 2, 0.5), Turn(3, 2, 2.0))
    # A run from before times were kept.
    assert episode_of(rollout([1, 2, 3], "001")) == (Turn(0, 0, 0.0), Turn(2, 1, 0.0))


def test_an_episode_that_failed_is_played_as_far_as_it_came_and_not_trained() -> None:
    whole, broken = rollout([1, 2, 3, 4], "0011"), rollout([1, 2, 3], "001", (0.5,), "environment_timeout")
    played = group_of([RolloutRecord(one, (), "") for one in (whole, broken)])
    assert [episode[1].sampled for episode in played.episodes] == [2, 1]
    assert played.row == Row(3, 2, 6)


def test_what_rollouts_begin_with_in_common_is_computed_once() -> None:
    rollouts = [
        rollout([1, 2, 3, 4], "0011"),
        rollout([1, 2, 5, 6, 7], "00101"),
        rollout([1, 2, 5, 6, 8, 9], "001011"),
        rollout([1, 2, 3, 4], "0011"),
    ]
    # 1, 2, 3 and 5, 6, 8; the last token of each is only predicted. A token sees itself and all before it.
    assert group_of([RolloutRecord(one, (), "") for one in rollouts]).row == Row(6, 9, 1 + 2 + 3 + 3 + 4 + 5)


def test_groups_are_read_from_a_runs_files(tmp_path: Path) -> None:
    for step in range(3):
        write(tmp_path, step, draws=4)
    for name in ("step_000001_good.jsonl", "step_000002.mine.jsonl", "step_000003.tokens.npz"):
        (tmp_path / "rollouts" / name).write_text("{}\n")  # not files of rollouts
    episodes = read_episodes(tmp_path, first=1)
    assert len(episodes.groups) == 8
    assert [group.has_signal for group in episodes.groups] == 4 * [True, False]
    assert episodes.groups[0].episodes[0] == (Turn(0, 0, 0.0), Turn(2, 2, 1.5))
    assert episodes.knows_env_s
    assert "step_000001.jsonl to step_000002.jsonl" in episodes.source


def test_a_seed_decides_which_groups_are_drawn() -> None:
    episodes = uneven()
    assert episodes.draw(7, 4, seed=1) is episodes.draw(7, 4, seed=1)
    assert {id(episodes.draw(position, 4, 1)) for position in range(400)} == {id(one) for one in episodes.groups}
    # A group of another size is drawn from the episodes of a recorded one.
    drawn = RecordedEpisodes((group([10, 20], tokens=30),), "made up").draw(0, 6, seed=0)
    assert len(drawn.episodes) == 6
    assert {turn.sampled for _, turn in drawn.episodes} <= {10, 20}
    assert drawn.row.tokens == 90


@pytest.mark.parametrize(
    ("draws", "line", "shown"),
    [(0, "", "0 groups"), (2, "", "2 groups"), (0, '{"step": 1}\n', r"step_000001\.jsonl")],
)
def test_a_run_without_enough_rollouts_is_refused(tmp_path: Path, draws: int, line: str, shown: str) -> None:
    if draws:
        write(tmp_path, 1, draws)
    elif line:
        RunDir(tmp_path).rollouts_of(1).parent.mkdir()
        RunDir(tmp_path).rollouts_of(1).write_text(line)
    with pytest.raises(UserError, match=shown):
        read_episodes(tmp_path)
