"""Simulates the pipeline of a run: fits costs to a recorded run, and finds the fastest division of the devices between
sampling and training."""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.launch.placement import AGE
from slimrl.monitor.rollouts import RolloutRecord, read_rollouts
from slimrl.monitor.sinks import read_metrics
from slimrl.types import Metrics, Rollout
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.measure import recall_speeds
from slimrl_tools.plan.plan import Planner, place_for, with_settings
from slimrl_tools.plan.replica import Costs, Recipe
from slimrl_tools.plan.simulate import Episode, EpisodeGroup, Outcome, Placement, Turn, simulate
from slimrl_tools.plan.timing import DISK, Speeds
from slimrl_tools.plan.workload import NO_WORK, rollout_sample, row_of

SKIPPED = 1  # number of first steps that are skipped, as kernels are compiled during these steps
MOST_FILES = 40  # only this many of the newest files are read: lengths change in a run, and reading takes time
FEWEST_GROUPS = 4
LINK = 2e10  # bytes per second between devices, assumed: PCIe 4 with 16 lanes, or 200 Gbit/s between hosts
GATHERS = 3  # exchanges of all weights between ranks per pack: forward pass, backward pass, gradients
MOST_RANKS = 1024
NEEDED = "time/step_s", "time/train_s", "time/rollout_s"
IDLE = "async/sampler_idle"
ROUNDS = 12  # rounds of the bisection between the smallest and the largest factor
LEAST, MOST = 1e-3, 1e3  # smallest and largest factor of the planned speeds
PARTS = 6  # first, PARTS + 1 evenly spaced divisions are tried; then neighbours of the best division
MOST_TURNS = 12_000  # turns of a simulated run (about half a second), unless FEWEST_STEPS need more
FEWEST_STEPS, MOST_STEPS = 5, 40
SAME = 0.02  # relative difference in speed below which two divisions count as equal
ENOUGH = 0.9
HEAD = "GPUs", "replicas + ranks", "steps/h", "tokens/s", "age", "p95", "dropped", "idle: samplers", "trainer", "waits"


@dataclass(frozen=True, slots=True)
class RecordedEpisodes:
    """The recorded groups of a run. `source` names the files from which they were read."""

    groups: tuple[EpisodeGroup, ...]
    source: str


def read_episodes(run_dir: Path, first: int = SKIPPED) -> RecordedEpisodes:
    """Read the groups in a run's last rollout files, without the steps before `first`. Raises UserError if there are
    fewer than `FEWEST_GROUPS`."""
    named = [RunDir(run_dir).rollouts_of(step) for step in RunDir(run_dir).rollout_files() if step >= first]
    paths = [path for path in named if path.is_file()][-MOST_FILES:]
    by_draw: dict[int, list[RolloutRecord]] = {}
    for path in paths:
        try:
            for record in read_rollouts(path):
                by_draw.setdefault(record.draw, []).append(record)
        except (LookupError, ValueError, TypeError) as error:
            raise UserError(f"{path} is no file of rollouts ({type(error).__name__}: {error}). Delete it.") from None
    if len(by_draw) < FEWEST_GROUPS:
        raise UserError(
            f"{run_dir}/rollouts has {len(by_draw)} groups, and {FEWEST_GROUPS} are the fewest from which a longer run "
            "can be drawn. Name the output_dir of an `rl` run that has made a few steps."
        )
    num = sum(map(len, by_draw.values()))
    source = f"{len(by_draw)} groups of {num} episodes, of {paths[0].name} to {paths[-1].name} in {run_dir}"
    return RecordedEpisodes(tuple(map(group_of, by_draw.values())), source)


def group_of(records: Sequence[RolloutRecord]) -> EpisodeGroup:
    """Convert the rollouts of one task to a group for the simulation. A failed rollout is simulated, too, but is no
    work for the trainer."""
    samples = [sample for record in records if (sample := rollout_sample(record.rollout))]
    has_signal = any(record.has_signal and not record.rollout.failure for record in records)
    row = row_of(samples) if samples else NO_WORK
    return EpisodeGroup(tuple(episode_of(record.rollout) for record in records), row, has_signal)


def episode_of(rollout: Rollout) -> Episode:
    """Convert a rollout to an episode: for each turn, the tokens that are read and sampled, and the environment's
    seconds."""
    starts = [0, *(turn.stop for turn in rollout.turns)]
    turns = [(turn.start - before, len(turn)) for before, turn in zip(starts, rollout.turns, strict=False)]
    waits = itertools.chain(rollout.env_s, itertools.repeat(0.0))  # a failed call has no recorded time
    return tuple(Turn(*turn, wait_s) for turn, wait_s in zip([(0, 0), *turns], waits, strict=False))


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A recorded run: its placement, recipe and episodes, and the metrics of its steps except the first ones."""

    placement: Placement
    recipe: Recipe
    episodes: RecordedEpisodes
    steps: Sequence[Metrics]

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the steps that have it; 0 if no step has it."""
        values = [metrics[name] for metrics in self.steps if name in metrics]
        return statistics.fmean(values) if values else 0.0

    def simulated(self, costs: Costs) -> Outcome:
        """Simulate the run with these costs."""
        return simulate(self.placement, self.recipe, costs, self.episodes.groups, MOST_STEPS)


def read_run(run_dir: Path, machine: Machine, first: int = SKIPPED) -> RecordedRun:
    """Read a recorded run, without its steps before `first`. Raises UserError unless it is a run of `rl`."""
    config = read_run_config(run_dir)
    if type(config) is not RLConfig:
        raise UserError(f"{run_dir} is a run of `{config.command}`: name the output_dir of a run of `rl`.")
    placed = place_for(config, machine)
    assert isinstance(placed, RLConfig)
    path = RunDir(run_dir).metrics
    lines = read_metrics(path) if path.exists() else []
    steps = [metrics for step, metrics in lines if step >= first and "time/step_s" in metrics]
    placement = Placement("one-process", placed.async_level, slots=placed.inference.max_slots)
    if (deployment := placed.deployment).are_apart:
        ranks = len(placed.trainer_gpu_ids) or deployment.num_trainers
        placement = replace(placement, kind="processes", num_samplers=deployment.num_samplers, num_trainers=ranks)
    return RecordedRun(placement, recipe_of(placed), read_episodes(run_dir, first), steps)


def recipe_of(config: RLConfig) -> Recipe:
    """Return the recipe, the sizes of batches, in a run's settings."""
    one, micro = config.orchestrator, config.trainer.micro_batch_tokens
    return Recipe(one.batch_size, one.rollouts_per_example, one.resample_factor, micro)


def calibrate(speeds: Speeds, run: RecordedRun) -> Costs:
    """Return costs with which a simulation of the recorded run takes as long as the run. The speeds of sampling and of
    training each get one factor. With several processes, the transfer times of batches and weights are fitted, too.

    The two factors can be separated only if sampling and training do not overlap: at `max_async_level` 0, or in one
    process. Raises UserError for a run without times, or with several processes above level 0.
    """
    if missing := [name for name in NEEDED if not any(name in metrics for metrics in run.steps)]:
        raise UserError(f"the run's metrics.jsonl lacks {', '.join(missing)}: let the run make a few steps more.")
    are_apart = run.placement.kind == "processes"
    if are_apart and run.placement.level:
        raise UserError(
            "this run sampled while it trained (processes, max_async_level above 0), so its times do not tell how "
            "fast each half is alone. Name a run with max_async_level = 0, or estimate a device's speeds by --on."
        )
    costs = Costs(speeds, source="stretched to the times of the run")
    step_s, train_s = run.mean("time/step_s"), run.mean("time/train_s")
    if are_apart:
        # The rest of a step is the transfer of weights and batches.
        rest = max(0.0, step_s - run.mean("time/rollout_s") - train_s)
        weights_s = min(rest, max(0.0, run.mean("time/wait_weights_s") - train_s))
        costs = replace(costs, weights_s=weights_s, batch_s=rest - weights_s)
    costs = replace(costs, training=train_s / max(1e-9, run.simulated(costs).train_s))
    # Search for the factor of sampling by bisection. At level 0, the sampler's simulated computing time must equal its
    # recorded time with open requests. Above level 0, in one process, the step times must be equal.
    open_s = step_s * (1 - run.mean(IDLE))
    knows_idle = not run.placement.level and any(IDLE in metrics for metrics in run.steps)
    low, high = LEAST, MOST
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        tried = run.simulated(replace(costs, sampling=middle))
        busy_s = (1 - tried.sampler_idle) * tried.step_s
        is_short = busy_s - costs.transfer_s(1) < open_s if knows_idle else tried.step_s < step_s
        low, high = (middle, high) if is_short else (low, middle)
    return replace(costs, sampling=math.sqrt(low * high))


@dataclass(frozen=True, slots=True)
class Question:
    """The inputs of a search for a recipe's best placement. `level` is the largest age of a rollout, in versions of the
    weights, with several processes; `level_alone` is the same for one process. `slots` is the number of slots per
    replica, and `least_trainers` the smallest number of ranks that can hold the trainer."""

    recipe: Recipe
    costs: Costs
    episodes: RecordedEpisodes
    level: int
    level_alone: int
    slots: int
    least_trainers: int = 1

    def outcome(self, placement: Placement) -> Outcome:
        """Simulate a placement."""
        groups = self.episodes.groups
        turns = statistics.fmean(len(one) - 1 for group in groups for one in group.episodes)
        steps = max(FEWEST_STEPS, min(MOST_STEPS, round(MOST_TURNS / (self.recipe.batch_size * turns))))
        return simulate(placement, self.recipe, self.costs, groups, steps)


def make_question(planner: Planner, machine: Machine, run_dir: str, is_here: bool) -> Question:
    """Return the inputs of a search for the best placement of a planned run, with the episodes recorded in `run_dir`.
    If `is_here`, the devices are like the recorded run's devices, and the costs are fitted to this run. Raises
    UserError if the recorded run lacks required numbers."""
    config, plan, least = planner.config, planner.on(machine), 1
    assert isinstance(config, RLConfig)
    if is_here:
        run = read_run(Path(run_dir), machine)
        episodes, costs = run.episodes, calibrate(recall_speeds(plan) or plan.speeds, run)
    else:
        episodes = read_episodes(Path(run_dir))
        costs = Costs(plan.speeds, source=f"{plan.speeds.source}, for {machine.device.name}")
        least = _least_trainers(planner, machine)
    over_link = plan.demand.weights / LINK
    to_replica = 2 * plan.demand.weights / DISK  # written to the disk, and read again
    gather_s = GATHERS * over_link
    costs = replace(costs, weights_s=costs.weights_s or to_replica, weights_more_s=over_link, gather_s=gather_s)
    level = config.max_async_level
    level, alone = (AGE, 0) if level == "auto" else (level, level)
    return Question(recipe_of(config), costs, episodes, level, alone, config.inference.max_slots, least)


def _least_trainers(planner: Planner, machine: Machine) -> int:
    """Return the smallest power of 2 of ranks with which the trainer fits devices like `machine.device`. Raises
    UserError if more than `MOST_RANKS` ranks are needed."""
    num = 1
    while num <= MOST_RANKS:
        settings = {"inference_gpu_ids": [0], "trainer_gpu_ids": list(range(1, num + 1))}
        config = with_settings(planner.config, settings | {"deployment.type": "processes"})
        plan = replace(planner, config=config).on(replace(machine, num_gpus=num + 1))
        ranks = [place for place in plan.places if any(one.name.startswith("trainer") for one in place.processes)]
        if all(place.expected <= place.capacity for place in ranks if place.device != "cpu"):
            return num
        num *= 2
    raise UserError(
        f"the trainer does not fit {machine.device.name}, however many share it: a rank has the layers that it "
        "computes whole. `slimrl plan` without --run says what takes the memory, and what to change."
    )


def choose(question: Question, num_devices: int) -> Outcome:
    """Return the outcome of the fastest division of `num_devices` between replicas and ranks. Raises UserError if the
    trainer needs more devices."""
    if num_devices == 1 and question.least_trainers == 1:
        return question.outcome(Placement("one-process", question.level_alone, slots=question.slots))
    most = num_devices - question.least_trainers  # replicas
    if most < 1:
        raise UserError(
            f"the trainer alone needs {question.least_trainers} such devices for its memory, and there are "
            f"{num_devices}: name more of them, or train an adapter (model.lora.rank)."
        )
    found = dict[int, Outcome]()  # by the number of replicas
    new = {1 + round((most - 1) * part / PARTS) for part in range(PARTS + 1)}
    while new := new - found.keys():
        for num in new:
            placement = Placement("processes", question.level, num, num_devices - num, question.slots)
            found[num] = question.outcome(placement)
        # Next, try the numbers half-way between the best number and its neighbours, until they differ by a sixteenth.
        tried = sorted(found)
        place = min(range(len(tried)), key=lambda index: found[tried[index]].step_s)
        beside = [*tried[max(0, place - 1) : place], *tried[place + 1 : place + 2]]
        new = {(tried[place] + other) // 2 for other in beside if abs(tried[place] - other) > max(1, most // 16)}
    fastest = min(outcome.step_s for outcome in found.values())
    # Among equally fast divisions, choose the one with the least idle time.
    as_fast = [one for one in found.values() if one.step_s <= (1 + SAME) * fastest]
    return min(as_fast, key=lambda one: one.sampler_idle + one.trainer_idle)


def pipeline_report(question: Question, outcomes: Sequence[Outcome], device: str, price: float) -> Iterator[str]:
    """Yield the lines of `slimrl plan --run`. `price` is the cost of a device-hour, 0 if unknown."""
    recipe, episodes = question.recipe, question.episodes
    yield f"SIMULATED, not measured: {recipe.batch_size} rollouts a step in groups of {recipe.group_size} on {device}"
    yield f"played: {episodes.source}"
    sampled = [sum(turn.sampled for turn in one) for group in episodes.groups for one in group.episodes]
    useless = 1 - sum(group.has_signal for group in episodes.groups) / len(episodes.groups)
    yield (
        f"  {statistics.fmean(sampled):,.0f} sampled tokens an episode, {max(sampled):,} in the longest; "
        f"of {useless:.0%} of the groups nothing was learned"
    )
    yield f"times: {question.costs.source}"
    yield ""
    rows = [[*HEAD, f"{'cost' if price else 'GPU-hours'} of 100 steps"], *(_row(one, price) for one in outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield from ("  ".join(map(str.rjust, row, widths)) for row in rows)
    yield ""
    cheapest = min(outcomes, key=lambda one: one.device_hours)
    cost = f"{_cost_of(cheapest, price):,.2f}{'' if price else ' GPU-hours'}"
    yield f"Cheapest: {_devices(cheapest)}, {cost} for 100 steps, {cheapest.steps_per_hour:,.1f} steps an hour."
    if len(outcomes) > 1:
        fast = [one for one in outcomes if ENOUGH * one.step_s <= min(other.step_s for other in outcomes)]
        enough = min(fast, key=lambda one: one.placement.num_devices)
        yield f"{ENOUGH:.0%} of the most steps an hour: {_devices(enough)}, {enough.steps_per_hour:,.1f}."


def _cost_of(outcome: Outcome, price: float) -> float:
    """Return the cost of 100 steps; in device-hours if `price` is 0."""
    return 100 * outcome.device_hours * (price or 1.0)


def _row(one: Outcome, price: float) -> list[str]:
    placement = one.placement
    numbers = [f"{one.steps_per_hour:,.1f}", f"{one.tokens_per_s:,.0f}", f"{one.age_mean:.2f}", f"{one.age_p95:.0f}"]
    shares = [f"{share:.0%}" for share in (one.dropped, one.sampler_idle, one.trainer_idle)]
    if placement.kind == "one-process":
        parts, waits = "in turn", "each for the other"
    else:
        parts, more = f"{placement.num_samplers} + {placement.num_trainers}", one.trainer_idle - one.sampler_idle
        waits = "both alike" if abs(more) < 0.1 else "trainer" if more > 0 else "samplers"
    return [str(placement.num_devices), parts, *numbers, *shares, waits, f"{_cost_of(one, price):,.2f}"]


def _devices(outcome: Outcome) -> str:
    placement, num = outcome.placement, outcome.placement.num_devices
    if placement.kind == "one-process":
        return "1 GPU in one process"
    return f"{num} GPUs ({placement.num_samplers} replicas + {placement.num_trainers} ranks)"
