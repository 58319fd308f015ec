"""The model of the pipeline against arithmetic, and what must hold of any run."""

from dataclasses import asdict, replace

import pytest

from packages.tools.tests.plan.made import ALONE, COSTS, RECIPE, SPEEDS, START, equal, group, uneven
from slimrl_tools.plan.episodes import RecordedEpisodes, Turn
from slimrl_tools.plan.replica import Costs, Recipe
from slimrl_tools.plan.simulate import LULL_S, Placement, simulate

PLACEMENTS = [
    ALONE,
    replace(ALONE, level=1, slots=3),
    replace(ALONE, level=3),
    Placement("processes", 0, 2, 2, slots=5),
    Placement("processes", 1, 1, 1, slots=64),
    Placement("processes", 2, 3, 2, slots=4),
    Placement("processes", 4, 2, 1, slots=16),
    Placement("processes", 2, 1, 1, shares_device=True),
]


def name(placement: Placement) -> str:
    """A short name of a placement."""
    shared = "-shared" if placement.shares_device else ""
    return f"{placement.kind}-{placement.level}-{placement.num_samplers}+{placement.num_trainers}{shared}"


every_placement = pytest.mark.parametrize("placement", PLACEMENTS, ids=name)


READING = replace(SPEEDS, decode_row=0.01, prefill=0.001)
SLOW_SAMPLING = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=0.001)
LINKS = replace(COSTS, weights_s=0.5, weights_more_s=0.25, batch_s=0.125)
SHARED = Placement("processes", 1, 1, 1, shares_device=True)
USELESS = RecordedEpisodes((group([10] * 4, has_signal=False),), "")
# Prompts of 50 tokens, each of which is read once a group, and an environment that takes 2 s.
LONG_PROMPTS = RecordedEpisodes((replace(group([10] * 4), episodes=((START, Turn(50, 10, 2.0)),) * 4),), "")

# The seconds of a step without variance, and the relative error that is allowed.
ARITHMETIC: dict[str, tuple[Placement, Recipe, Costs, RecordedEpisodes, float, float]] = {
    # 10 decoding steps of 0.1 s, then 4 groups of 25 tokens at 0.01 s.
    "in turn": (ALONE, RECIPE, COSTS, equal(), 2.0, 1e-6),
    # One pass over the weights for all prompts that arrive together.
    "prompts": (ALONE, RECIPE, Costs(READING), LONG_PROMPTS, 0.1 + 0.2 + 10 * 0.26 + 2.0 + 1.0, 1e-6),
    # Two waves, each of which waits for its environment. The second finds two of the prompts unread.
    "half the slots": (
        replace(ALONE, slots=8), RECIPE, Costs(READING), LONG_PROMPTS, 2 * (0.1 + 0.1 + 10 * 0.18 + 2.0) + 1.0, 1e-6,
    ),
    "waits for weights and batches": (
        Placement("processes", 0, 4, 1), RECIPE, LINKS, equal(), 2.0 + 0.5 + 2 * 0.25 + 0.125, 1e-6,
    ),
    # 0.7 s of sampling hide behind 1 s of training.
    "halves that overlap": (Placement("processes", 1, 1, 1), RECIPE, COSTS, equal(7), 1.0, 0.02),
    # 1 s and 1 s side by side take 1.7 s each; in turn, neither disturbs the other.
    "a shared device": (SHARED, RECIPE, COSTS, equal(), 1.7, 0.03),
    "a shared device in turn": (replace(SHARED, level=0), RECIPE, COSTS, equal(), 2.0, 1e-6),
    "a slow environment in turn": (ALONE, RECIPE, COSTS, equal(env_s=2.0), 4.0, 1e-6),
    # Three times as many groups as a batch has, in three rounds, and nothing to train on.
    "groups without signal": (ALONE, RECIPE, COSTS, USELESS, 3.0, 1e-6),
    "groups without signal, kept": (ALONE, replace(RECIPE, resample_factor=1), COSTS, USELESS, 1.0, 1e-6),
    "64 replicas": (
        Placement("processes", 0, 64, 1), replace(RECIPE, batch_size=256), SLOW_SAMPLING, equal(), 4.016, 1e-6,
    ),
    "training bounds": (Placement("processes", 2, 2, 1), RECIPE, replace(COSTS, training=100.0), equal(), 100.0, 1e-6),
}  # fmt: skip


@pytest.mark.parametrize("case", ARITHMETIC)
def test_without_variance_a_step_takes_what_arithmetic_says(case: str) -> None:
    placement, recipe, costs, episodes, step_s, allowed = ARITHMETIC[case]
    outcome = simulate(placement, recipe, costs, episodes)
    assert outcome.step_s == pytest.approx(step_s, rel=allowed)
    assert outcome.age_max <= placement.level


def test_shares_and_costs_are_of_all_devices() -> None:
    outcome = simulate(ALONE, RECIPE, COSTS, equal())
    assert (outcome.train_s, outcome.tokens_per_s) == pytest.approx((1.0, 50.0))
    assert (outcome.sampler_idle, outcome.trainer_idle) == pytest.approx((0.5, 0.5))
    assert outcome.device_hours == pytest.approx(2.0 / 3600)
    assert simulate(Placement("processes", 1, 1, 1), RECIPE, COSTS, equal(7)).trainer_idle == pytest.approx(0, abs=0.02)
    assert SHARED.num_devices == 1
    account = simulate(ALONE, RECIPE, COSTS, USELESS, steps=5).account
    assert account["trained"] == 0 and account["dropped_useless"] == account["started"]


def test_two_replicas_double_what_sampling_bounds() -> None:
    one, two = (simulate(Placement("processes", 2, num, 1), RECIPE, SLOW_SAMPLING, equal()) for num in (1, 2))
    assert one.step_s == pytest.approx(10 * 16 * 0.1, rel=0.01)
    assert one.step_s / two.step_s == pytest.approx(2.0, rel=0.01)


def test_ranks_share_packs_and_those_beyond_the_rollouts_bring_nothing() -> None:
    recipe = Recipe(8, 4, 3, pack_tokens=10)
    row = equal().groups[0].row.times(4)  # 100 tokens in ten packs, but no more than eight rollouts
    costs = replace(COSTS, gather_s=1.0)
    assert costs.train_s(row, recipe, 1) == pytest.approx(1.0)
    assert costs.train_s(row, recipe, 2) == pytest.approx(0.5 + 4 * 1.0 * 0.5)
    assert COSTS.train_s(row, recipe, 8) == pytest.approx(1.0 / 8)
    assert COSTS.train_s(row, recipe, 64) == pytest.approx(1.0 / 8)
    assert COSTS.train_s(row.times(0), recipe, 2) == 0.0


def test_one_process_above_level_0_hides_waits_and_not_work() -> None:
    ahead = simulate(replace(ALONE, level=2), RECIPE, COSTS, equal(env_s=2.0))
    assert 2.0 <= ahead.step_s <= 2.0 + 4 * LULL_S
    assert ahead.age_max == 2


def test_a_long_tail_slows_level_0_and_not_level_2() -> None:
    short, tail = group([10] * 4), group([10, 10, 10, 25])
    without, with_tail = RecordedEpisodes((short,), ""), RecordedEpisodes((short,) * 7 + (tail,), "")
    costs = replace(COSTS, training=1.5)

    def step_s(level: int, episodes: RecordedEpisodes) -> float:
        return simulate(Placement("processes", level, 1, 1), RECIPE, costs, episodes, steps=60).step_s

    assert step_s(0, with_tail) > 1.15 * step_s(0, without)
    assert step_s(2, with_tail) == pytest.approx(step_s(2, without), rel=0.02)


@pytest.mark.slow
@every_placement
def test_no_token_is_older_than_the_bound_and_every_rollout_is_accounted_for(placement: Placement) -> None:
    for seed in range(3):
        outcome = simulate(placement, RECIPE, COSTS, uneven(seed), steps=15, seed=seed)
        account = dict(outcome.account)
        assert outcome.age_max <= placement.level
        assert account.pop("started") == sum(account.values())
        assert account["trained"] > 0
        assert 0.0 <= outcome.sampler_idle <= 1.0 and -1e-9 <= outcome.trainer_idle <= 1.0


def test_stale_groups_are_dropped_and_played_again() -> None:
    # Some groups take as long as many steps.
    episodes = RecordedEpisodes((group([5] * 4),) * 9 + (group([5, 5, 5, 5], env_s=30.0),), "")
    outcome = simulate(Placement("processes", 2, 1, 1), RECIPE, COSTS, episodes, steps=30)
    assert outcome.account["dropped_stale"] > 0
    assert outcome.dropped == outcome.account["dropped_stale"] / outcome.account["started"]


@every_placement
def test_a_seed_decides_everything(placement: Placement) -> None:
    first, again, other = (
        asdict(simulate(placement, RECIPE, COSTS, uneven(), steps=8, seed=seed)) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
