"""Every advantage estimator against numbers worked out by hand, and the identities between them."""

import math
import random

import pytest

from slimrl.config.loss import PRESETS, LossConfig
from slimrl.orchestrator.advantages import group_advantages

ESTIMATORS = ("grpo", "dr_grpo", "rloo", "opo", "reinforce")


def advantages(estimator, rewards, lengths=None):
    choices = LossConfig(type="aipo", advantage=estimator).choices()
    return group_advantages(rewards, lengths or [1] * len(rewards), choices)


def test_dr_grpo_subtracts_the_mean():
    assert advantages("dr_grpo", [1.0, 0.0, 0.5]) == pytest.approx([0.5, -0.5, 0.0])


def test_grpo_divides_by_the_sample_standard_deviation():
    # mean 1, sample variance (1 + 1 + 4) / 2 = 3
    std = math.sqrt(3) + 1e-4
    assert advantages("grpo", [0.0, 0.0, 3.0]) == pytest.approx([-1 / std, -1 / std, 2 / std])


def test_rloo_subtracts_the_mean_of_the_others():
    assert advantages("rloo", [1.0, 0.0, 0.5]) == pytest.approx([1 - 0.25, 0 - 0.75, 0.5 - 0.5])


def test_opo_weighs_its_baseline_by_length():
    # b* = (1 x 1 + 3 x 0) / 4
    assert advantages("opo", [1.0, 0.0], lengths=[1, 3]) == pytest.approx([0.75, -0.25])


def test_reinforce_subtracts_its_constant():
    assert advantages("reinforce", [1.0, 0.25]) == pytest.approx([0.5, -0.25])
    choices = LossConfig(type="reinforce", baseline=0.2).choices()
    assert group_advantages([1.0, 0.25], [1, 1], choices) == pytest.approx([0.8, 0.05])


def test_identities_on_random_groups():
    rng = random.Random(0)
    for G in range(2, 9):
        rewards = [rng.random() for _ in range(G)]
        centred = advantages("dr_grpo", rewards)
        assert advantages("rloo", rewards) == pytest.approx([G / (G - 1) * a for a in centred])
        assert advantages("opo", rewards, [7] * G) == pytest.approx(centred)
        scale = advantages("grpo", rewards)[0] / centred[0]
        assert advantages("grpo", rewards) == pytest.approx([scale * a for a in centred])


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "opo"])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1 / 3, 1e9])
def test_equal_rewards_give_exactly_zero(estimator, reward):
    assert advantages(estimator, [reward] * 7, lengths=[1, 2, 3, 4, 5, 6, 7]) == [0.0] * 7


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "opo"])
def test_a_group_of_one_has_no_signal(estimator):
    assert advantages(estimator, [0.7]) == [0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_nearly_equal_rewards_stay_finite(estimator):
    values = advantages(estimator, [0.5, 0.5 + 1e-15])
    assert all(math.isfinite(value) and abs(value) < 1 for value in values)


def test_a_preset_names_its_estimator():
    rewards, lengths = [0.0, 1.0, 1.0, 1.0], [4, 2, 2, 2]
    for preset, parts in PRESETS.items():
        choices = LossConfig(type=preset).choices()
        assert group_advantages(rewards, lengths, choices) == advantages(parts.advantage, rewards, lengths), preset
