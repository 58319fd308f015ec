"""The model of the pipeline against arithmetic, and what must hold of any run."""

from dataclasses import asdict, replace

import pytest

from packages.tools.tests.plan.pipeline.made import ALONE, COSTS, RECIPE, SPEEDS, equal, group, uneven
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.pipeline.simulate import LULL_S, simulate

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


def test_without_variance_a_step_takes_what_arithmetic_says() -> None:
    # 10 decoding steps of 0.1 s, then 4 groups of 25 tokens at 0.01 s.
    outcome = simulate(ALONE, RECIPE, COSTS, equal())
    assert outcome.step_s == pytest.approx(2.0)
    assert outcome.train_s == pytest.approx(1.0)
    assert outcome.tokens_per_s == pytest.approx(50.0)
    assert outcome.sampler_idle == outcome.trainer_idle == pytest.approx(0.5)
    assert outcome.device_hours == pytest.approx(2.0 / 3600)


def test_each_sequence_prefill_slot_and_wait_counts() -> None:
    speeds = replace(SPEEDS, decode_row=0.01, prefill=0.001)
    one = RecordedEpisodes((replace(equal(10, env_s=2.0).groups[0]),), "made up")
    read = tuple(replace(episode, turns=(replace(episode.turns[0], read=50),)) for episode in one.groups[0].episodes)
    one = replace(one, groups=(replace(one.groups[0], episodes=read),))
    # Each group's prompt is read once: one pass over the weights for all that arrive together.
    prefill_s = 0.1 + 4 * 50 * 0.001
    outcome = simulate(ALONE, RECIPE, Costs(speeds), one)
    assert outcome.step_s == pytest.approx(prefill_s + 10 * (0.1 + 16 * 0.01) + 2.0 + 1.0)
    # With half as many slots the episodes are played in two waves, each of which waits for its environment. The second
    # finds two of the prompts unread.
    halved = simulate(replace(ALONE, slots=8), RECIPE, Costs(speeds), one)
    each_s = 0.1 + 2 * 50 * 0.001 + 10 * (0.1 + 8 * 0.01) + 2.0
    assert halved.step_s == pytest.approx(2 * each_s + 1.0)


def test_two_replicas_double_what_sampling_bounds_and_nothing_else() -> None:
    slow_sampling = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=0.01)
    one = simulate(Placement("processes", 2, 1, 1), RECIPE, slow_sampling, equal())
    two = simulate(Placement("processes", 2, 2, 1), RECIPE, slow_sampling, equal())
    assert one.step_s == pytest.approx(10 * 16 * 0.1, rel=0.01)
    assert one.step_s / two.step_s == pytest.approx(2.0, rel=0.01)
    slow_training = Costs(SPEEDS, training=100.0)
    bound = [simulate(Placement("processes", 2, num, 1), RECIPE, slow_training, equal()).step_s for num in (1, 2)]
    assert bound == pytest.approx([100.0, 100.0])


def test_ranks_share_packs_and_those_beyond_the_rollouts_bring_nothing() -> None:
    recipe = Recipe(8, 4, 3, pack_tokens=10)
    row = equal().groups[0].row.times(4)  # 100 tokens in ten packs, but no more than eight rollouts
    costs = replace(COSTS, gather_s=1.0)
    assert costs.train_s(row, recipe, 1) == pytest.approx(1.0)
    assert costs.train_s(row, recipe, 2) == pytest.approx(0.5 + 4 * 1.0 * 0.5)
    assert COSTS.train_s(row, recipe, 8) == pytest.approx(1.0 / 8)
    assert COSTS.train_s(row, recipe, 64) == pytest.approx(1.0 / 8)
    assert COSTS.train_s(row.times(0), recipe, 2) == 0.0


def test_at_level_0_processes_wait_for_weights_and_batches() -> None:
    costs = replace(COSTS, weights_s=0.5, weights_more_s=0.25, batch_s=0.125)
    outcome = simulate(Placement("processes", 0, 4, 1), RECIPE, costs, equal())
    assert outcome.step_s == pytest.approx(2.0 + 0.5 + 2 * 0.25 + 0.125)
    assert outcome.age_max == 0


def test_halves_that_overlap_take_as_long_as_the_slower_one() -> None:
    outcome = simulate(Placement("processes", 1, 1, 1), RECIPE, COSTS, equal(7))
    assert outcome.step_s == pytest.approx(1.0, rel=0.02)  # 0.7 s of sampling hide behind 1 s of training
    assert outcome.trainer_idle == pytest.approx(0.0, abs=0.02)


def test_a_shared_device_slows_both_halves() -> None:
    shared = Placement("processes", 1, 1, 1, shares_device=True)
    # 1 s and 1 s side by side take 1.7 s each.
    assert simulate(shared, RECIPE, COSTS, equal()).step_s == pytest.approx(1.7, rel=0.03)
    at_once = simulate(replace(shared, level=0), RECIPE, COSTS, equal())
    assert at_once.step_s == pytest.approx(2.0)  # they take turns, so neither disturbs the other
    assert shared.num_devices == 1


def test_one_process_above_level_0_hides_waits_and_not_work() -> None:
    slow = equal(env_s=2.0)
    in_turn = simulate(ALONE, RECIPE, COSTS, slow)
    ahead = simulate(replace(ALONE, level=2), RECIPE, COSTS, slow)
    assert in_turn.step_s == pytest.approx(4.0)
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


def test_groups_without_signal_are_replaced_up_to_the_bound() -> None:
    useless = RecordedEpisodes((group([10] * 4, has_signal=False),), "")
    outcome = simulate(ALONE, RECIPE, COSTS, useless, steps=5)
    # Three times as many as a batch has, in three rounds, and nothing to train on.
    assert outcome.step_s == pytest.approx(3.0)
    assert outcome.account["trained"] == 0
    assert outcome.account["dropped_useless"] == outcome.account["started"]
    never = simulate(ALONE, replace(RECIPE, resample_factor=1), COSTS, useless, steps=5)
    assert never.step_s == pytest.approx(1.0)


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


def test_replicas_share_the_episodes_evenly() -> None:
    num = 64
    recipe = replace(RECIPE, batch_size=256)
    costs = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=0.001)
    outcome = simulate(Placement("processes", 0, num, 1), recipe, costs, equal(), steps=4)
    assert outcome.step_s == pytest.approx(10 * 4 * 0.1 + 0.016)
