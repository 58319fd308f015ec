"""Every advantage estimator against numbers worked out by hand, and the identities between them."""

import math
import random

import pytest

from slimrl.config.loss import LossConfig
from slimrl.errors import UserError
from slimrl.orchestrator.advantages import (
    group_advantages,
    returns,
    token_advantages,
    token_rewards,
    turn_advantages,
)
from slimrl.orchestrator.roles import load_estimate
from slimrl.types import Rollout

COMPARING = ("grpo", "dr_grpo", "rloo", "opo")


def advantages(estimator, rewards, lengths=None):
    loss = LossConfig(type="aipo", advantage=estimator).resolve()
    return group_advantages(rewards, lengths or [1] * len(rewards), loss)


def test_a_function_of_one_s_own_decides_alone(tmp_path):
    (tmp_path / "own.py").write_text(
        "def above(rewards, lengths, least: float): return [r * n - least for r, n in zip(rewards, lengths)]\n"
        "def none(rewards, lengths): return []\n"
        "def forgets(rewards, lengths): pass\n"
        "def lazy(rewards, lengths): return (1.0 for _ in rewards)\n"
        "def nan(rewards, lengths): return [float('nan') for _ in rewards]\n"
        "def fails(rewards, lengths): return rewards[2]\n"
    )
    settings = {"advantage": f"{tmp_path / 'own.py'}:above", "advantage_args": {"least": 0.5}}
    own = load_estimate(LossConfig(**settings).resolve())
    assert group_advantages([1.0, 1.0], [2, 3], own) == [1.5, 2.5]  # equal rewards, too
    assert turn_advantages([played([0.25, 1.0], lengths=[2, 3])], own) == [[5.75, 5.75]]
    assert not own.is_group_relative and load_estimate(LossConfig().resolve()) == LossConfig().resolve()
    each = "must return a number for each of 2 rewards, not "
    messages = {
        "none": f"{each}[]",
        "forgets": f"{each}None",
        "lazy": each,
        "nan": f"{each}[nan",
        "fails": "IndexError",
    }
    for name, message in messages.items():
        wrong = load_estimate(LossConfig(advantage=f"{tmp_path / 'own.py'}:{name}").resolve())
        with pytest.raises(UserError) as caught:
            group_advantages([1.0, 1.0], [2, 3], wrong)
        assert f"{name}`" in str(caught.value) and message in str(caught.value)


STD = math.sqrt(3) + 1e-4  # rewards 0, 0, 3: mean 1, sample variance (1 + 1 + 4) / 2
BY_HAND = {
    "dr_grpo subtracts the mean": ("dr_grpo", [1.0, 0.0, 0.5], [1] * 3, [0.5, -0.5, 0.0]),
    "grpo divides by the standard deviation": ("grpo", [0.0, 0.0, 3.0], [1] * 3, [-1 / STD, -1 / STD, 2 / STD]),
    "rloo subtracts the mean of the others": ("rloo", [1.0, 0.0, 0.5], [1] * 3, [1 - 0.25, 0 - 0.75, 0.5 - 0.5]),
    "opo weighs by length, b* = (1 x 1 + 3 x 0) / 4": ("opo", [1.0, 0.0], [1, 3], [0.75, -0.25]),
    "reinforce subtracts its constant": ("reinforce", [1.0, 0.25], [1, 1], [0.5, -0.25]),
    **{f"{name} has nothing to compare one with": (name, [0.7], [5], [0.0]) for name in COMPARING},
}


@pytest.mark.parametrize("case", BY_HAND)
def test_advantages_by_hand(case):
    estimator, rewards, lengths, expected = BY_HAND[case]
    assert advantages(estimator, rewards, lengths) == pytest.approx(expected, abs=0 if len(rewards) == 1 else None)


def test_identities_on_random_groups():
    rng = random.Random(0)
    for G in range(2, 9):
        rewards = [rng.random() for _ in range(G)]
        centred = advantages("dr_grpo", rewards)
        assert advantages("rloo", rewards) == pytest.approx([G / (G - 1) * a for a in centred])
        assert advantages("opo", rewards, [7] * G) == pytest.approx(centred)
        scale = advantages("grpo", rewards)[0] / centred[0]
        assert advantages("grpo", rewards) == pytest.approx([scale * a for a in centred])


@pytest.mark.parametrize("estimator", COMPARING)
def test_equal_rewards_give_exactly_zero_and_nearly_equal_ones_stay_finite(estimator):
    for reward in (0.0, 0.1, 1 / 3, 1e9):
        assert advantages(estimator, [reward] * 7, lengths=[1, 2, 3, 4, 5, 6, 7]) == [0.0] * 7
    values = advantages(estimator, [0.5, 0.5 + 1e-15])
    assert all(math.isfinite(value) and abs(value) < 1 for value in values)


def played(turn_rewards, lengths=None):
    """A rollout of turns with these numbers of tokens and these rewards."""
    lengths = lengths or [1] * len(turn_rewards)
    token_ids, mask = [], []
    for length in lengths:
        token_ids += [1] + [2] * length
        mask += [False] + [True] * length
    zeros = (0.0,) * len(mask)
    tokens, rewards = (tuple(token_ids), tuple(mask), zeros, (0,) * len(mask)), tuple(turn_rewards)
    return Rollout("t", *tokens, sum(turn_rewards), rewards)


def by_turn(rollouts, **loss):
    return turn_advantages(rollouts, LossConfig(**loss).resolve())


def test_returns_are_discounted_sums_of_what_follows():
    assert returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert returns([1.0, 0.0, 2.0], 1.0) == [3.0, 2.0, 2.0]


def test_a_turn_is_compared_with_the_same_turn_of_the_others():
    assert by_turn([played([0.0, 1.0]), played([0.0])]) == [[0.5, 0.5], [-0.5]]  # by default, an episode is
    group = [played([1.0, 0.0, 5.0]), played([0.0, 1.0])]
    # returns: 6, 5, 5 and 1, 1; the third turn has nothing to be compared with
    assert by_turn(group, credit="turn") == [[2.5, 2.0, 0.0], [-2.5, -2.0]]
    lengths = [played([1.0], lengths=[1]), played([0.0], lengths=[3])]
    assert by_turn(lengths, type="opo", credit="turn") == [[0.75], [-0.25]]
    # with gamma 0: each turn's own reward
    assert by_turn(group, credit="turn", gamma=0.0) == [[0.5, -0.5, 0.0], [-0.5, 0.5]]


@pytest.mark.parametrize("credit", ["episode", "turn"])
def test_equal_episodes_carry_no_signal_under_any_credit(credit):
    group = [played([0.5, 0.25]) for _ in range(4)]
    assert by_turn(group, credit=credit) == [[0.0, 0.0]] * 4


def test_advantages_are_on_the_turns_tokens_and_rewards_on_their_last():
    rollout = played([0.25, 1.0], lengths=[2, 3])
    assert token_advantages(rollout, [0.5, -0.5]) == (0, 0.5, 0.5, 0, -0.5, -0.5, -0.5)
    assert token_rewards(rollout) == (0, 0, 0.25, 0, 0, 0, 1.0)
    critic = LossConfig(type="ppo", advantage="gae").resolve()  # whose advantages are left to the trainer
    assert turn_advantages([rollout], critic) == [[0.0, 0.0]]
