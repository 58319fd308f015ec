"""Computes advantages from the rewards of a group. The functions are pure; docstrings give formulas and papers.

Two settings define an algorithm. The estimator (`grpo`, `rloo`, ...) compares rewards and returns advantages. The
credit decides which rewards are compared: the rewards of whole episodes, or of turns with the same number.

Index suffixes: _G for the rollouts of one group, which have the same task; _K for the turns of a rollout. R = reward, l
= number of sampled tokens.
"""

import math
import statistics
from collections.abc import Sequence
from functools import partial

from slimrl.config.loss import ResolvedLoss
from slimrl.errors import UserError
from slimrl.io.user_code import call_user_code
from slimrl.types import Rollout

# Added to the sample standard deviation, as in TRL, so that nearly equal rewards do not give huge advantages.
STD_EPS = 1e-4


def reinforce(rewards_G: Sequence[float], baseline: float) -> list[float]:
    """A_i = R_i - b with a constant b (Williams 1992)."""
    return [reward - baseline for reward in rewards_G]


def dr_grpo(rewards_G: Sequence[float]) -> list[float]:
    """A_i = R_i - mean R (Dr. GRPO, 2503.20783)."""
    mean = statistics.fmean(rewards_G)
    return [reward - mean for reward in rewards_G]


def grpo(rewards_G: Sequence[float]) -> list[float]:
    """A_i = (R_i - mean R) / (std R + eps), sample standard deviation (GRPO, 2402.03300). 0 for a group of one."""
    std = statistics.stdev(rewards_G) if len(rewards_G) > 1 else 0.0
    return [difference / (std + STD_EPS) for difference in dr_grpo(rewards_G)]


def rloo(rewards_G: Sequence[float]) -> list[float]:
    """A_i = R_i - mean of the other rewards = G/(G-1) (R_i - mean R) (RLOO, 2402.14740). 0 for a group of one."""
    G = len(rewards_G)
    return [difference * G / (G - 1) if G > 1 else 0.0 for difference in dr_grpo(rewards_G)]


def opo(rewards_G: Sequence[float], lengths_G: Sequence[int]) -> list[float]:
    """A_i = R_i - b*, b* = sum(l_i R_i) / sum(l_i): the variance-optimal baseline (OPO, 2505.23585)."""
    baseline = sum(n * reward for n, reward in zip(lengths_G, rewards_G, strict=True)) / sum(lengths_G)
    return [reward - baseline for reward in rewards_G]


def group_advantages(rewards_G: Sequence[float], lengths_G: Sequence[int], loss: ResolvedLoss) -> list[float]:
    """Return one advantage per reward, computed with the loss's estimator. Equal rewards give exactly 0, except with a
    user-defined function and with `reinforce`, which subtracts a constant. For `rae`, `roles.py` calls this function
    with `reinforce` and the baseline of a role. The trainer, not this function, computes `gae`. Raises UserError if a
    user-defined function does not return one number per reward."""
    if loss.estimate:
        found = call_user_code(f"advantage `{loss.advantage}`", partial(loss.estimate, rewards_G, lengths_G))
        is_list = isinstance(found, Sequence) and len(found) == len(rewards_G)
        if not is_list or not all(isinstance(one, int | float) and math.isfinite(one) for one in found):
            asked = f"a number for each of {len(rewards_G)} rewards"
            raise UserError(f"advantage `{loss.advantage}` must return {asked}, not {found!r:.200}.")
        return [float(value) for value in found]
    if loss.advantage == "reinforce":
        return reinforce(rewards_G, loss.baseline)
    if max(rewards_G) == min(rewards_G):
        return [0.0] * len(rewards_G)
    if loss.advantage == "opo":
        return opo(rewards_G, lengths_G)
    return {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}[loss.advantage](rewards_G)


def turn_advantages(rollouts_G: Sequence[Rollout], loss: ResolvedLoss) -> list[list[float]]:
    """Return the advantage of every turn of every rollout, (G, K). The loss's credit selects the computation:

    episode: all turns have the advantage of the episode.
    turn: the return from this turn on, compared with the group's other rollouts at the same turn.

    With a value head (`gae`) all advantages are 0 here, because the trainer computes them from the rewards.
    """
    if loss.has_critic:
        return [[0.0] * len(rollout.turn_rewards) for rollout in rollouts_G]
    if loss.credit == "turn":
        return _compare_turns(rollouts_G, loss)
    rewards_G, lengths_G = [r.reward for r in rollouts_G], [r.num_sampled for r in rollouts_G]
    episode_G = group_advantages(rewards_G, lengths_G, loss)
    return [[value] * len(r.turn_rewards) for value, r in zip(episode_G, rollouts_G, strict=True)]


def token_advantages(rollout: Rollout, advantages_K: Sequence[float]) -> tuple[float, ...]:
    """Return the advantages (T,) of the tokens. A sampled token has the advantage of its turn. Other tokens have 0."""
    advantages_T = [0.0] * len(rollout.token_ids_T)
    for turn, advantage in zip(rollout.turns, advantages_K, strict=True):
        for t in turn:
            advantages_T[t] = advantage
    return tuple(advantages_T)


def token_rewards(rollout: Rollout) -> tuple[float, ...]:
    """Return the rewards (T,) of the tokens, for a value head. The last token of a turn has the turn's reward, other
    tokens have 0."""
    rewards_T = [0.0] * len(rollout.token_ids_T)
    for turn, reward in zip(rollout.turns, rollout.turn_rewards, strict=True):
        rewards_T[turn[-1]] = reward
    return tuple(rewards_T)


def returns(rewards_K: Sequence[float], gamma: float) -> list[float]:
    """Return the discounted return of each turn: sum over k' >= k of gamma^(k' - k) r_k'."""
    values, later = list[float](), 0.0
    for reward in reversed(rewards_K):
        later = reward + gamma * later
        values.append(later)
    return values[::-1]


def _compare_turns(rollouts_G: Sequence[Rollout], loss: ResolvedLoss) -> list[list[float]]:
    """Return the advantages (G, K) of the turns. The return of turn k is compared with the returns of turn k of all
    rollouts that have so many turns."""
    returns_GK = [returns(rollout.turn_rewards, loss.gamma) for rollout in rollouts_G]
    lengths_GK = [[len(turn) for turn in rollout.turns] for rollout in rollouts_G]
    advantages_GK: list[list[float]] = [[] for _ in rollouts_G]
    for k in range(max(map(len, returns_GK))):
        same = [g for g, returns_K in enumerate(returns_GK) if k < len(returns_K)]
        values = group_advantages([returns_GK[g][k] for g in same], [lengths_GK[g][k] for g in same], loss)
        for g, advantage in zip(same, values, strict=True):
            advantages_GK[g].append(advantage)
    return advantages_GK
