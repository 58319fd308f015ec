"""The simulated pipeline: recorded episodes, arithmetic, invariants, calibration, and the division of devices."""

import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Metrics, Rollout, StopReason
from slimrl_tools.plan.pipeline import (
    Question,
    RecordedEpisodes,
    RecordedRun,
    calibrate,
    choose,
    episode_of,
    group_of,
    pipeline_report,
    read_episodes,
)
from slimrl_tools.plan.replica import Costs, Recipe
from slimrl_tools.plan.simulate import LULL_S, Episode, EpisodeGroup, Outcome, Placement, Turn, draw_group
from slimrl_tools.plan.simulate import simulate as simulate_groups
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row

GROUP = 4
# A decoding step takes 0.1 s however many decode, and a training step 1 s for each 100 tokens.
SPEEDS = Speeds(decode_step=0.1, decode_row=0.0, prefill=0.0, train=0.01, update=0.0, source="made up")
COSTS = Costs(SPEEDS)
RECIPE = Recipe(batch_size=16, group_size=GROUP, resample_factor=3, pack_tokens=100)
START = Turn(0, 0, 0.0)
ALONE = Placement("one-process", slots=64)


def simulate(
    placement: Placement, recipe: Recipe, costs: Costs, episodes: RecordedEpisodes, steps: int = 20, seed: int = 0
) -> Outcome:
    return simulate_groups(placement, recipe, costs, episodes.groups, steps, seed)


def group(lengths: list[int], env_s: float = 0.0, has_signal: bool = True, tokens: int = 25) -> EpisodeGroup:
    """Episodes of one turn on a prompt that takes no time, which train so many tokens."""
    episodes = tuple((START, Turn(0, length, env_s)) for length in lengths)
    return EpisodeGroup(episodes, Row(tokens, tokens, 0), has_signal)


def equal(length: int = 10, env_s: float = 0.0) -> RecordedEpisodes:
    """Episodes without variance."""
    return RecordedEpisodes((group([length] * GROUP, env_s),), "made up")


def uneven(seed: int = 0) -> RecordedEpisodes:
    """Episodes of one to three turns with lengths and waits that differ much; a fifth of the groups is useless."""
    rng = random.Random(seed)

    def episode() -> Episode:
        turns = (
            Turn(rng.randrange(5, 40), rng.randrange(1, 60), rng.choice([0.0, 0.1, 3.0]))
            for _ in range(rng.randint(1, 3))
        )
        return Turn(0, 0, rng.choice([0.0, 0.5])), *turns

    rows = (Row(300, 100, 9000) for _ in range(40))
    groups = (EpisodeGroup(tuple(episode() for _ in range(GROUP)), row, rng.random() >= 0.2) for row in rows)
    return RecordedEpisodes(tuple(groups), "made up")


def rollout(token_ids: list[int], mask: str, env_s: tuple[float, ...] = (), failure: str = "") -> Rollout:
    """A rollout whose mask is written as zeros and ones."""
    marks, num = tuple(mark == "1" for mark in mask), len(mask)
    rewards = (0.0,) * len(mask.replace("0", " ").split())
    reason = StopReason.FAILED if failure else StopReason.DONE
    return Rollout(
        *("task", tuple(token_ids), marks, (0.0,) * num, (0,) * num, 0.0),
        **{"turn_rewards": rewards, "failure": failure, "stop_reason": reason, "env_s": env_s},
    )  # type: ignore[arg-type]


def record(one: Rollout) -> RolloutRecord:
    return RolloutRecord(one, (), "")


def write(run_dir: Path, step: int, draws: int) -> None:
    """A step of groups of two, every other one without a signal."""
    played = rollout([1, 2, 3, 4], "0011", (0.0, 1.5))
    records = [
        RolloutRecord(played, (1.0,), "", "e", 10 * step + draw, draw % 2 == 0) for draw in range(draws) for _ in "ab"
    ]
    RunDir(run_dir).rollouts_of(step).parent.mkdir(parents=True, exist_ok=True)
    write_rollouts(RunDir(run_dir).rollouts_of(step), records)


def test_an_episode_has_what_was_read_sampled_and_waited_for_in_each_turn() -> None:
    played = rollout([5, 6, 7, 8, 9, 5, 10, 7, 11, 9], "0001100011", (0.25, 0.5, 2.0))
    assert episode_of(played) == (Turn(0, 0, 0.25), Turn(3, 2, 0.5), Turn(3, 2, 2.0))
    assert episode_of(rollout([1, 2, 3], "001")) == (Turn(0, 0, 0.0), Turn(2, 1, 0.0))


def test_groups_have_the_work_of_their_rows() -> None:
    # An episode that failed is played as far as it came, and not trained.
    broken = group_of([record(rollout([1, 2, 3, 4], "0011")), record(rollout([1, 2, 3], "001", (0.5,), "timeout"))])
    assert [episode[1].sampled for episode in broken.episodes] == [2, 1]
    assert broken.row == Row(3, 2, 6)
    rollouts = [([1, 2, 3, 4], "0011"), ([1, 2, 5, 6, 7], "00101"), ([1, 2, 5, 6, 8, 9], "001011")]
    shared = group_of([record(rollout(*one)) for one in (*rollouts, rollouts[0])])
    # 1, 2, 3 and 5, 6, 8; the last token of each is only predicted. A token sees itself and all before it.
    assert shared.row == Row(6, 9, 1 + 2 + 3 + 3 + 4 + 5)


def test_groups_are_read_from_a_runs_files(tmp_path: Path) -> None:
    for step in range(3):
        write(tmp_path, step, draws=4)
    for name in ("step_000001_good.jsonl", "step_000002.mine.jsonl", "step_000003.tokens.npz"):
        (tmp_path / "rollouts" / name).write_text("{}\n")  # not files of rollouts
    episodes = read_episodes(tmp_path, first=1)
    assert [group.has_signal for group in episodes.groups] == 4 * [True, False]
    assert episodes.groups[0].episodes[0] == (Turn(0, 0, 0.0), Turn(2, 2, 1.5))
    assert "step_000001.jsonl to step_000002.jsonl" in episodes.source


@pytest.mark.parametrize(("draws", "line", "shown"), [(2, "", "2 groups"), (0, '{"step": 1}\n', r"step_000001\.jsonl")])
def test_a_run_without_enough_rollouts_is_refused(tmp_path: Path, draws: int, line: str, shown: str) -> None:
    write(tmp_path, 1, draws)
    with RunDir(tmp_path).rollouts_of(1).open("a") as file:
        file.write(line)
    with pytest.raises(UserError, match=shown):
        read_episodes(tmp_path)


def test_a_seed_decides_which_groups_are_drawn() -> None:
    groups = uneven().groups
    assert draw_group(groups, 7, 4, seed=1) is draw_group(groups, 7, 4, seed=1)
    assert {id(draw_group(groups, position, 4, 1)) for position in range(400)} == {id(one) for one in groups}
    # A group of another size is drawn from the episodes of a recorded one.
    drawn = draw_group([group([10, 20], tokens=30)], 0, 6, seed=0)
    assert (len(drawn.episodes), drawn.row.tokens) == (6, 90)
    assert {turn.sampled for _, turn in drawn.episodes} <= {10, 20}


PLACEMENTS = [
    ALONE,
    replace(ALONE, level=1, slots=3),
    replace(ALONE, level=3),
    Placement("processes", 0, 2, 2, slots=5),
    Placement("processes", 1, 1, 1, slots=64),
    Placement("processes", 2, 3, 2, slots=4),
    Placement("processes", 4, 2, 1, slots=16),
]
every_placement = pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
READING = replace(SPEEDS, decode_row=0.01, prefill=0.001)
SLOW_SAMPLING = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=0.001)
LINKS = replace(COSTS, weights_s=0.5, weights_more_s=0.25, batch_s=0.125)
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
    "a slow environment in turn": (ALONE, RECIPE, COSTS, equal(env_s=2.0), 4.0, 1e-6),
    # Three times as many groups as a batch has, in three rounds, and nothing to train on.
    "groups without signal": (ALONE, RECIPE, COSTS, USELESS, 3.0, 1e-6),
    "groups without signal, kept": (ALONE, replace(RECIPE, resample_factor=1), COSTS, USELESS, 1.0, 1e-6),
    "64 replicas": (
        Placement("processes", 0, 64, 1), replace(RECIPE, batch_size=256), SLOW_SAMPLING, equal(), 4.016, 1e-6,
    ),
    "training bounds": (Placement("processes", 2, 2, 1), RECIPE, replace(COSTS, training=100.0), equal(), 100.0, 1e-6),
    "sampling bounds": (Placement("processes", 2, 1, 1), RECIPE, SLOW_SAMPLING, equal(), 10 * 16 * 0.1, 0.01),
    "two replicas": (Placement("processes", 2, 2, 1), RECIPE, SLOW_SAMPLING, equal(), 10 * 8 * 0.1, 0.01),
    # Above level 0 one process hides waits, and not work.
    "waits are hidden": (replace(ALONE, level=2), RECIPE, COSTS, equal(env_s=2.0), 2.0 + 2 * LULL_S, 0.05),
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
    account = simulate(ALONE, RECIPE, COSTS, USELESS, steps=5).account
    assert account["trained"] == 0 and account["dropped_useless"] == account["started"]


def test_ranks_share_packs_and_those_beyond_the_rollouts_bring_nothing() -> None:
    recipe = Recipe(8, 4, 3, pack_tokens=10)
    row = equal().groups[0].row.times(4)  # 100 tokens in ten packs, but no more than eight rollouts
    gathering = replace(COSTS, gather_s=1.0)
    found = [gathering.train_s(row, recipe, ranks) for ranks in (1, 2)]
    assert found == pytest.approx([1.0, 0.5 + 4 * 1.0 * 0.5])
    assert [COSTS.train_s(row, recipe, ranks) for ranks in (8, 64)] == pytest.approx([1.0 / 8] * 2)
    assert COSTS.train_s(row.times(0), recipe, 2) == 0.0


def test_a_long_tail_slows_level_0_and_not_level_2() -> None:
    short, tail = group([10] * 4), group([10, 10, 10, 25])
    without, with_tail = RecordedEpisodes((short,), ""), RecordedEpisodes((short,) * 7 + (tail,), "")
    costs = replace(COSTS, training=1.5)

    def step_s(level: int, episodes: RecordedEpisodes) -> float:
        return simulate(Placement("processes", level, 1, 1), RECIPE, costs, episodes, steps=60).step_s

    assert step_s(0, with_tail) > 1.15 * step_s(0, without)
    assert step_s(2, with_tail) == pytest.approx(step_s(2, without), rel=0.02)


def test_stale_groups_are_dropped_and_played_again() -> None:
    # Some groups take as long as many steps.
    episodes = RecordedEpisodes((group([5] * 4),) * 9 + (group([5, 5, 5, 5], env_s=30.0),), "")
    outcome = simulate(Placement("processes", 2, 1, 1), RECIPE, COSTS, episodes, steps=30)
    assert outcome.account["dropped_stale"] > 0
    assert outcome.dropped == outcome.account["dropped_stale"] / outcome.account["started"]


@every_placement
def test_no_token_is_too_old_every_rollout_is_accounted_for_and_a_seed_decides_all(placement: Placement) -> None:
    outcomes = [simulate(placement, RECIPE, COSTS, uneven(seed), steps=10, seed=seed) for seed in (0, 1, 1)]
    for outcome in outcomes:
        account = dict(outcome.account)
        assert outcome.age_max <= placement.level
        assert account.pop("started") == sum(account.values())
        assert account["trained"] > 0
        assert 0.0 <= outcome.sampler_idle <= 1.0 and -1e-9 <= outcome.trainer_idle <= 1.0
    assert asdict(outcomes[1]) == asdict(outcomes[2]) != asdict(outcomes[0])


TRUTH = replace(COSTS, sampling=3.0, training=0.5)
PROCESSES = Placement("processes", 0)


def made_by(placement: Placement, costs: Costs) -> RecordedRun:
    """A run as the model itself would have recorded it."""
    outcome = simulate(placement, RECIPE, costs, uneven(), steps=40)
    rest_s = costs.weights_s + costs.batch_s
    metrics = {
        "time/step_s": outcome.step_s,
        "time/train_s": outcome.train_s,
        "time/rollout_s": outcome.step_s - outcome.train_s - rest_s,
        "async/sampler_idle": outcome.sampler_idle + costs.weights_s / outcome.step_s,
    }
    if placement.kind == "processes":
        metrics["time/wait_weights_s"] = outcome.train_s + costs.weights_s
    return RecordedRun(placement, RECIPE, uneven(), [metrics])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placement", "truth"),
    [
        (ALONE, TRUTH),
        (replace(ALONE, level=1), TRUTH),
        (PROCESSES, replace(TRUTH, weights_s=0.75, batch_s=0.25)),
    ],
    ids=["level 0", "level 1", "processes"],
)
def test_speeds_are_found_again_in_a_run(placement: Placement, truth: Costs) -> None:
    found = calibrate(SPEEDS, made_by(placement, truth))
    assert found.training == pytest.approx(truth.training)
    assert found.sampling == pytest.approx(truth.sampling, rel=0.05)
    assert (found.weights_s, found.batch_s) == pytest.approx((truth.weights_s, truth.batch_s))


def test_a_run_that_does_not_tell_its_times_is_refused() -> None:
    empty: list[Metrics] = [{"reward/mean": 1.0}]
    with pytest.raises(UserError, match="time/step_s"):
        calibrate(SPEEDS, RecordedRun(ALONE, RECIPE, uneven(), empty))
    with pytest.raises(UserError, match="max_async_level = 0"):
        calibrate(SPEEDS, made_by(replace(PROCESSES, level=1), TRUTH))


def question(**changes: object) -> Question:
    """Ten devices' worth of sampling for each one of training, if these are divided without loss."""
    costs = Costs(replace(SPEEDS, decode_step=0.0, decode_row=0.1), training=1.6)
    asked = Question(replace(RECIPE, batch_size=64), costs, equal(), level=2, level_alone=0, slots=64)
    return replace(asked, **changes)  # type: ignore[arg-type]


@pytest.mark.slow
def test_devices_are_divided_as_the_work_is_and_the_report_shows_the_cost() -> None:
    # A step samples 64 s and trains 6.4 s long: ten replicas to a rank.
    chosen = choose(question(), 11)
    assert (chosen.placement.num_samplers, chosen.placement.num_trainers) == (10, 1)
    assert chosen.step_s == pytest.approx(6.4, rel=0.1)
    assert choose(question(), 1).placement.kind == "one-process"
    assert choose(question(least_trainers=4), 8).placement.num_trainers >= 4
    with pytest.raises(UserError, match="needs 4 such devices"):
        choose(question(least_trainers=4), 4)
    outcomes = [choose(question(), num) for num in (1, 4, 12, 40)]
    text = "\n".join(pipeline_report(question(), outcomes, "an imaginary device", price=2.0))
    assert text.startswith("SIMULATED, not measured") and "in turn" in text and "Cheapest: " in text
    assert f"{100 * outcomes[1].device_hours * 2.0:,.2f}" in text
    assert "90% of the most steps an hour: 40 GPUs (36 replicas + 4 ranks)" in text
