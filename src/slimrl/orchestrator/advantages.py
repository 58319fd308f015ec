"""How a group's rewards become advantages. Pure functions of lists; formulas and sources in each docstring.

Index suffixes: _G the rollouts of one group, that is of one task; _K the turns of a rollout. R = reward, l = number of
sampled tokens. An estimator turns values that are compared with each other into advantages; the credit says what is
compared with what.
"""

import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import groupby

from slimrl.config.loss import ResolvedLoss
from slimrl.types import Rollout

# As in TRL: the sample standard deviation, with this added so that nearly equal rewards do not explode.
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
    """A_i = R_i - mean of the others = G/(G-1) (R_i - mean R) (RLOO, 2402.14740). 0 for a group of one."""
    G = len(rewards_G)
    return [difference * G / (G - 1) if G > 1 else 0.0 for difference in dr_grpo(rewards_G)]


def opo(rewards_G: Sequence[float], lengths_G: Sequence[int]) -> list[float]:
    """A_i = R_i - b*, b* = sum(l_i R_i) / sum(l_i): the variance-optimal baseline (OPO, 2505.23585)."""
    baseline = sum(n * reward for n, reward in zip(lengths_G, rewards_G, strict=True)) / sum(lengths_G)
    return [reward - baseline for reward in rewards_G]


def group_advantages(rewards_G: Sequence[float], lengths_G: Sequence[int], loss: ResolvedLoss) -> list[float]:
    """The advantages of values that are compared, by the estimator that the loss names. Equal ones give exactly 0,
    except with the constant baseline of `reinforce`, which does not compare rollouts."""
    if loss.advantage == "reinforce":
        return reinforce(rewards_G, loss.baseline)
    if max(rewards_G) == min(rewards_G):
        return [0.0] * len(rewards_G)
    if loss.advantage == "opo":
        return opo(rewards_G, lengths_G)
    return {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}[loss.advantage](rewards_G)


def turn_advantages(rollouts_G: Sequence[Rollout], loss: ResolvedLoss) -> list[list[float]]:
    """The advantage of every turn of every rollout, (G, K), by the credit that the loss names.

    episode: the episode's, on all of its turns. turn: what a turn and those after it earned, compared with the group's
    other rollouts at the same turn. state: the episode's, plus `state_weight` times that of the turn among all turns of
    the group that faced the same messages (GiGPO, 2505.10978). gae: no advantages yet, but what each turn earned.
    """
    if loss.has_critic:
        return [list(rollout.turn_rewards) for rollout in rollouts_G]
    if loss.credit == "turn":
        return _compared(rollouts_G, [list(range(len(r.turn_rewards))) for r in rollouts_G], loss)
    rewards_G, lengths_G = [r.reward for r in rollouts_G], [r.num_sampled for r in rollouts_G]
    episode_G = group_advantages(rewards_G, lengths_G, loss)
    episode_GK = [[value] * len(r.turn_rewards) for value, r in zip(episode_G, rollouts_G, strict=True)]
    if loss.credit == "episode":
        return episode_GK
    state_GK = _compared(rollouts_G, [states(r) for r in rollouts_G], loss)
    return [
        [a + loss.state_weight * b for a, b in zip(*pair, strict=True)]
        for pair in zip(episode_GK, state_GK, strict=True)
    ]


def on_tokens(rollout: Rollout, advantages_K: Sequence[float], loss: ResolvedLoss) -> tuple[float, ...]:
    """The turns' advantages on their tokens, 0 elsewhere; for a critic what a turn earned, on its last token."""
    advantages_T = [0.0] * len(rollout.token_ids_T)
    for turn, advantage in zip(rollout.turns, advantages_K, strict=True):
        for t in turn[-1:] if loss.has_critic else turn:
            advantages_T[t] = advantage
    return tuple(advantages_T)


def returns(rewards_K: Sequence[float], gamma: float) -> list[float]:
    """What each turn and those after it earned: sum over k' >= k of gamma^(k' - k) r_k'."""
    values, later = list[float](), 0.0
    for reward in reversed(rewards_K):
        later = reward + gamma * later
        values.append(later)
    return values[::-1]


def states(rollout: Rollout) -> list[Hashable]:
    """What the policy faced at each turn: the messages since the assistant spoke, which in an opening is an example.
    Equal ones are the same state."""
    runs = groupby(rollout.messages, key=lambda message: message["role"] == "assistant")
    faced = [tuple((message["role"], message["content"]) for message in run) for spoke, run in runs if not spoke]
    return list(faced[max(0, len(faced) - len(rollout.turn_rewards)) :])


def _compared(
    rollouts_G: Sequence[Rollout], keys_GK: Sequence[Sequence[Hashable]], loss: ResolvedLoss
) -> list[list[float]]:
    """The advantages of the turns' returns, compared among those with the same key."""
    turns: dict[Hashable, list[tuple[int, int, float, int]]] = defaultdict(list)
    for g, (rollout, keys_K) in enumerate(zip(rollouts_G, keys_GK, strict=True)):
        returns_K = returns(rollout.turn_rewards, loss.gamma)
        for k, (key, value, turn) in enumerate(zip(keys_K, returns_K, rollout.turns, strict=True)):
            turns[key].append((g, k, value, len(turn)))
    advantages_GK = [[0.0] * len(keys_K) for keys_K in keys_GK]
    for same in turns.values():
        values = group_advantages([value for *_, value, _ in same], [length for *_, length in same], loss)
        for (g, k, *_), advantage in zip(same, values, strict=True):
            advantages_GK[g][k] = advantage
    return advantages_GK
