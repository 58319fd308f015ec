"""Whoever plays against itself plays several roles, which need not earn alike: rollouts are compared within a role.

With the advantage `rae` they are compared with a running mean of what the role earned before (role-conditioned
advantage estimation, SPIRAL, 2506.24119), which needs no group: it compares single rollouts too.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace

from slimrl.config.loss import ResolvedLoss
from slimrl.environments.base import Taskset
from slimrl.errors import UserError
from slimrl.orchestrator.advantages import turn_advantages
from slimrl.rollout.self_play import self_play_roles
from slimrl.types import Rollout

Means = MutableMapping[str, float]


def role_advantages(
    rollouts_G: Sequence[Rollout], loss: ResolvedLoss, means: Means, game: str
) -> list[tuple[float, ...]]:
    """`turn_advantages` within each role, in the order of the rollouts, (G, K). `rae` reads and moves the `means`,
    whose keys are game and role."""
    advantages_GK: list[tuple[float, ...]] = [()] * len(rollouts_G)
    for role in dict.fromkeys(rollout.role for rollout in rollouts_G):
        places = [place for place, rollout in enumerate(rollouts_G) if rollout.role == role]
        same = [rollouts_G[place] for place in places]
        chosen = loss
        if loss.advantage == "rae":
            baseline = moved(means, f"{game}/{role}", [rollout.reward for rollout in same], loss.decay)
            chosen = replace(loss, advantage="reinforce", baseline=baseline)
        for place, advantages_K in zip(places, turn_advantages(same, chosen), strict=True):
            advantages_GK[place] = tuple(advantages_K)
    return advantages_GK


def moved(means: Means, key: str, rewards: Sequence[float], decay: float) -> float:
    """Move a mean by rewards, b <- decay b + (1 - decay) R for each, and return what it was before: a baseline that
    does not depend on the rewards which are compared with it leaves the gradient unbiased. The first rewards have no
    mean before them, and are compared with their own.

    >>> means = {}
    >>> moved(means, "seller", [1.0, 0.0], 0.5), moved(means, "seller", [1.0, 1.0], 0.5), means["seller"]
    (0.5, 0.5, 0.875)
    """
    if key not in means:
        means[key] = sum(rewards) / len(rewards)
        return means[key]
    before = means[key]
    for reward in rewards:
        means[key] = decay * means[key] + (1.0 - decay) * reward
    return before


def check_groups(taskset: Taskset, rollouts_per_example: int, loss: ResolvedLoss) -> None:
    """Raises UserError if rollouts do not come out even, or if there would be nothing to compare a rollout with."""
    num_roles = max(1, len(self_play_roles(taskset)))
    if rollouts_per_example % num_roles:
        raise UserError(
            f"`orchestrator.rollouts_per_example` = {rollouts_per_example}: {type(taskset).__name__} is played in "
            f"{num_roles} roles at once, each of which gives a rollout, so it must be a multiple of {num_roles}."
        )
    if loss.is_group_relative and rollouts_per_example < 2 * num_roles:
        raise UserError(
            f"`orchestrator.rollouts_per_example` = {rollouts_per_example}: {type(taskset).__name__} is played in "
            f"{num_roles} roles, so each would have a single rollout in a group, and nothing to be compared with. Set "
            f'it to {2 * num_roles} or more, or take `trainer.loss.advantage` "rae", which compares with the past.'
        )


def num_tables(taskset: Taskset, rollouts_per_example: int) -> int:
    """How often a task is played for so many rollouts, one for each role."""
    return rollouts_per_example // max(1, len(self_play_roles(taskset)))
