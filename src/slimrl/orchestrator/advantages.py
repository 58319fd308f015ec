"""How a group's rewards become advantages. Pure functions of lists; formulas and sources in each docstring.

Index suffix _G: the rollouts of one group, that is of one task. R = reward, l = number of sampled tokens.
"""

import statistics
from collections.abc import Sequence

from slimrl.config.train import LossChoices

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


def group_advantages(rewards_G: Sequence[float], lengths_G: Sequence[int], choices: LossChoices) -> list[float]:
    """The advantages of one group by the estimator that the loss names. Equal rewards give exactly 0, except with the
    constant baseline of `reinforce`, which does not compare rollouts."""
    if choices.advantage == "reinforce":
        return reinforce(rewards_G, choices.baseline)
    if max(rewards_G) == min(rewards_G):
        return [0.0] * len(rewards_G)
    if choices.advantage == "opo":
        return opo(rewards_G, lengths_G)
    return {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}[choices.advantage](rewards_G)
