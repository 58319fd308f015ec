"""Computes advantages in self-play, and loads a user-defined advantage function. Each rollout is compared only with
rollouts of its role, because some roles may get higher rewards than others.

The advantage `rae` compares a rollout with a running mean of its role's earlier rewards (role-conditioned advantage
estimation, SPIRAL, 2506.24119). So `rae` also works for a single rollout of each role.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import replace
from functools import partial

from slimrl.config.loss import ADVANTAGES, OWN, ResolvedLoss
from slimrl.errors import UserError
from slimrl.io.user_code import load_function
from slimrl.orchestrator.advantages import turn_advantages
from slimrl.types import Rollout, Taskset

Means = MutableMapping[str, float]


def role_advantages(
    rollouts_G: Sequence[Rollout], loss: ResolvedLoss, means: Means, game: str
) -> list[tuple[float, ...]]:
    """Return the advantages (G, K) of the rollouts' turns. Each role's rollouts are passed to `turn_advantages`
    separately. `rae` reads and updates `means`, a mapping from `game/role` to a running mean."""
    advantages_GK: list[tuple[float, ...]] = [()] * len(rollouts_G)
    # dict.fromkeys keeps the order of the roles; a set's order would differ between runs.
    for role in dict.fromkeys(rollout.role for rollout in rollouts_G):
        places = [place for place, rollout in enumerate(rollouts_G) if rollout.role == role]
        same = [rollouts_G[place] for place in places]
        chosen = loss
        # The running mean is constant for these rollouts, so `reinforce` can subtract it as a baseline.
        if loss.advantage == "rae":
            baseline = update_mean(means, f"{game}/{role}", [rollout.reward for rollout in same], loss.decay)
            chosen = replace(loss, advantage="reinforce", baseline=baseline)
        for place, advantages_K in zip(places, turn_advantages(same, chosen), strict=True):
            advantages_GK[place] = tuple(advantages_K)
    return advantages_GK


def update_mean(means: Means, key: str, rewards: Sequence[float], decay: float) -> float:
    """Update a running mean, b <- decay b + (1 - decay) R for each reward R, and return the previous mean.

    The previous mean does not depend on the rewards that are compared with it, so the gradient stays unbiased. The
    first rewards of a role have no previous mean, so their mean is returned.

    >>> means = {}
    >>> update_mean(means, "seller", [1.0, 0.0], 0.5)
    0.5
    >>> update_mean(means, "seller", [1.0, 1.0], 0.5), means["seller"]
    (0.5, 0.875)
    """
    if key not in means:
        means[key] = sum(rewards) / len(rewards)
        return means[key]
    before = means[key]
    for reward in rewards:
        means[key] = decay * means[key] + (1.0 - decay) * reward
    return before


def load_estimate(loss: ResolvedLoss) -> ResolvedLoss:
    """Return the loss. If its advantage is a user-defined function, set `estimate` to this function. Raises UserError
    if the function does not exist or does not accept `advantage_args`."""
    if loss.advantage in ADVANTAGES:
        return loss
    own = load_function(loss.advantage, "advantage", loss.advantage_args, OWN["advantage"])
    return replace(loss, estimate=partial(own, **loss.advantage_args))


def check_groups(taskset: Taskset, rollouts_per_example: int, loss: ResolvedLoss) -> None:
    """Raise UserError if `rollouts_per_example` rollouts are not a whole number of games, or if `loss` compares
    rollouts but a role has only one rollout in a group."""
    num_roles = max(1, len(taskset.roles))
    if rollouts_per_example % num_roles:
        raise UserError(
            f"`orchestrator.rollouts_per_example` = {rollouts_per_example}: {taskset.class_name} is played in "
            f"{num_roles} roles at once, each of which gives a rollout, so it must be a multiple of {num_roles}."
        )
    if loss.is_group_relative and rollouts_per_example < 2 * num_roles:
        raise UserError(
            f"`orchestrator.rollouts_per_example` = {rollouts_per_example}: {taskset.class_name} is played in "
            f"{num_roles} roles, so each would have a single rollout in a group, and nothing to be compared with. Set "
            f'it to {2 * num_roles} or more, or take `trainer.loss.advantage` "rae", which compares with the past.'
        )


def num_games(taskset: Taskset, rollouts_per_example: int) -> int:
    """Return the number of games with `rollouts_per_example` rollouts in total. A game has one rollout per role."""
    return rollouts_per_example // max(1, len(taskset.roles))
