"""Adds group rewards, which an environment computes by comparing the rollouts of a group (`Taskset.group_rewards`)."""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slimrl.environments.plain import check_reward
from slimrl.errors import RolloutError, UserError
from slimrl.io.user_code import call_user_code
from slimrl.orchestrator.curriculum import Draw
from slimrl.types import Rollout

FAILURE = "group_reward_error"


def add_group_rewards(rollouts_G: Sequence[Rollout], draw: Draw) -> tuple[Rollout, ...]:
    """Return the rollouts of a group, with the group rewards added to the last turn's reward and to the metrics. Failed
    rollouts get no group reward. If `group_rewards` fails, all rollouts of the group are marked as failed."""
    taskset = draw.taskset
    kept = [rollout for rollout in rollouts_G if not rollout.failure]
    if not taskset.group_reward_names or not kept:
        return tuple(rollouts_G)
    try:
        given = call_user_code("group_rewards() failed", lambda: taskset.group_rewards(copy.deepcopy(draw.task), kept))
        earned = iter(_rows(given, len(kept)))
        return tuple(rollout if rollout.failure else _with_rewards(rollout, next(earned)) for rollout in rollouts_G)
    except (RolloutError, UserError) as error:
        detail = error.detail if isinstance(error, RolloutError) else str(error)
        failed: dict[str, Any] = {"failure": FAILURE, "failure_detail": detail, "reward": math.nan}
        return tuple(rollout if rollout.failure else replace(rollout, **failed) for rollout in rollouts_G)


def _rows(given: object, num: int) -> list[dict[str, float]]:
    """Return each rollout's group rewards by name, parsed from the result of `group_rewards`. Raises RolloutError
    unless each name has one finite number per rollout."""
    if not isinstance(given, Mapping):
        raise RolloutError(FAILURE, f"group_rewards() must give lists by name, not {given!r:.100}")
    for name, values in given.items():
        if not isinstance(values, Sequence) or len(values) != num:
            raise RolloutError(FAILURE, f"group_rewards(): `{name}` must have a number for each of {num} rollouts")
    try:
        return [{name: check_reward(float(values[g])) for name, values in given.items()} for g in range(num)]
    except (TypeError, ValueError, OverflowError) as error:
        raise RolloutError(FAILURE, f"group_rewards() gave what is no number: {error}") from error


def _with_rewards(rollout: Rollout, earned: Mapping[str, float]) -> Rollout:
    more = sum(earned.values())
    metrics = {**rollout.metrics, **{f"reward_{name}": value for name, value in earned.items()}}
    turns = (*rollout.turn_rewards[:-1], rollout.turn_rewards[-1] + more)
    return replace(rollout, reward=check_reward(rollout.reward + more), turn_rewards=turns, metrics=metrics)
