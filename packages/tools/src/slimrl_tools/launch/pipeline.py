"""Prepares simulations of the pipeline for the command `plan`, from settings and a recorded run."""

from dataclasses import replace
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.launch.placement import AGE
from slimrl.monitor.run_settings import read_run_config
from slimrl.monitor.sinks import read_metrics
from slimrl_tools.launch.planning import Planner, place_for
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.measure import recall_speeds
from slimrl_tools.plan.options import PlanOptions
from slimrl_tools.plan.pipeline.calibrate import RecordedRun, calibrate
from slimrl_tools.plan.pipeline.choose import Question
from slimrl_tools.plan.pipeline.episodes import read_episodes
from slimrl_tools.plan.pipeline.placement import LINK, Costs, placement_of, recipe_of
from slimrl_tools.plan.plan import Plan, plan_on, with_settings
from slimrl_tools.plan.timing import DISK

SKIPPED = 1  # first steps of a run, during which products are compiled
MOST_RANKS = 1024
GATHERS = 3  # times that the ranks exchange the weights over a pack: forward, backward, and the gradients


def read_run(run_dir: Path, machine: Machine, first: int = SKIPPED) -> RecordedRun:
    """Return a run to simulate, without the steps before `first`. Raises UserError unless it is a run of `rl`."""
    config = read_run_config(run_dir)
    if type(config) is not RLConfig:
        raise UserError(f"{run_dir} is a run of `{config.command}`: name the output_dir of a run of `rl`.")
    placed = place_for(config, machine)
    assert isinstance(placed, RLConfig)
    path = RunDir(run_dir).metrics
    lines = read_metrics(path) if path.exists() else []
    steps = [metrics for step, metrics in lines if step >= first and "time/step_s" in metrics]
    return RecordedRun(placement_of(placed), recipe_of(placed), read_episodes(run_dir, first), steps)


def make_question(planner: Planner, machine: Machine, options: PlanOptions) -> Question:
    """Return the simulation's question about a run's settings, with the episodes of a recorded run. Without `--on` the
    devices are like the recorded run's. Raises UserError if the recorded run lacks required numbers."""
    config = planner.config
    assert isinstance(config, RLConfig)
    plan, least = planner.on(machine), 1
    if options.on:
        episodes = read_episodes(Path(options.run), SKIPPED)
        costs = Costs(plan.speeds, source=f"{plan.speeds.source}, for {machine.device.name}")
        least = least_trainers(planner, machine)
    else:
        run = read_run(Path(options.run), machine)
        episodes = run.episodes
        costs = calibrate(recall_speeds(config, plan.demand, plan.workload) or plan.speeds, run)
    level = config.max_async_level
    return Question(
        recipe_of(config),
        with_links(costs, plan, config.deployment.weights == "broadcast"),
        episodes,
        level=AGE if level == "auto" else level,
        level_alone=0 if level == "auto" else level,
        slots=config.inference.max_slots,
        least_trainers=least,
    )


def with_links(costs: Costs, plan: Plan, is_broadcast: bool) -> Costs:
    """Return the costs with transfers between devices, from the bytes of the weights unless a run has measured them."""
    num_bytes = plan.demand.compute.bytes * plan.demand.shape.weights
    over_link = num_bytes / LINK
    to_replica = over_link if is_broadcast else 2 * num_bytes / DISK  # written, and read
    return replace(
        costs,
        weights_s=costs.weights_s or to_replica,
        weights_more_s=over_link,
        gather_s=GATHERS * over_link,
    )


def least_trainers(planner: Planner, machine: Machine) -> int:
    """Return the fewest ranks, a power of 2, with which the trainer fits such devices. Raises UserError without any."""
    num = 1
    while not _fits(planner, machine, num):
        num *= 2
        if num > MOST_RANKS:
            raise UserError(
                f"the trainer does not fit {machine.device.name}, however many share it: a rank has the layers that it "
                "computes whole. `slimrl plan` without --run says what takes the memory, and what to change."
            )
    return num


def _fits(planner: Planner, machine: Machine, num_ranks: int) -> bool:
    """Return True if `num_ranks` trainer ranks fit on separate devices."""
    settings = {"inference_gpu_ids": [0], "trainer_gpu_ids": list(range(1, num_ranks + 1))}
    config = with_settings(planner.config, settings | {"deployment.type": "processes"})
    larger = replace(machine, num_gpus=num_ranks + 1)
    plan = plan_on(place_for(config, larger), larger, planner.basis)
    ranks = [place for place in plan.places if any(one.name.startswith("trainer") for one in place.processes)]
    return all(place.expected <= place.capacity for place in ranks if place.device != "cpu")
