"""Fits the costs of work to a recorded run: a plan's speeds, scaled until the simulation takes as long as the run.

One factor for sampling and one for training are fitted, and, for a run of several processes, the transfer times of
batches and weights. A run at level 0 separates the two factors, since it overlaps nothing; so does any run in one
process.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slimrl.errors import UserError
from slimrl.types import Metrics
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.pipeline.simulate import Outcome, simulate
from slimrl_tools.plan.timing import Speeds

NEEDED = "time/step_s", "time/train_s", "time/rollout_s"
IDLE = "async/sampler_idle"
SIMULATED_STEPS = 40
ROUNDS = 12
LEAST, MOST = 1e-3, 1e3  # factors of the planned speeds


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A finished run: its placement, recipe and episodes, and the metrics of its steps without the first."""

    placement: Placement
    recipe: Recipe
    episodes: RecordedEpisodes
    steps: Sequence[Metrics]

    def mean(self, name: str) -> float:
        """Return the mean of a metric over the steps that have it, 0 if none has."""
        values = [metrics[name] for metrics in self.steps if name in metrics]
        return statistics.fmean(values) if values else 0.0

    def simulated(self, costs: Costs) -> Outcome:
        """Simulate the run with these costs."""
        return simulate(self.placement, self.recipe, costs, self.episodes, SIMULATED_STEPS)


def calibrate(speeds: Speeds, run: RecordedRun) -> Costs:
    """Return costs with which a simulation of the run's own placement takes as long as the run.

    Raises UserError for a run without times, or one of several processes above level 0, where training hides sampling.
    """
    missing = [name for name in NEEDED if not any(name in metrics for metrics in run.steps)]
    if missing:
        raise UserError(f"the run's metrics.jsonl lacks {', '.join(missing)}: let the run make a few steps more.")
    are_apart = run.placement.kind == "processes"
    if are_apart and run.placement.level:
        raise UserError(
            "this run sampled while it trained (processes, max_async_level above 0), so its times do not tell how "
            "fast each half is alone. Name a run with max_async_level = 0, or estimate a device's speeds by --on."
        )
    costs = Costs(speeds, source="stretched to the times of the run")
    if are_apart:
        # The rest of a step is neither sampling nor training.
        train_s = run.mean("time/train_s")
        rest = max(0.0, run.mean("time/step_s") - run.mean("time/rollout_s") - train_s)
        weights_s = min(rest, max(0.0, run.mean("time/wait_weights_s") - train_s))
        costs = replace(costs, weights_s=weights_s, batch_s=rest - weights_s)
    training = run.mean("time/train_s") / max(1e-9, run.simulated(costs).train_s)
    costs = replace(costs, training=training)
    return replace(costs, sampling=_sampling_factor(run, costs))


def _sampling_factor(run: RecordedRun, costs: Costs) -> float:
    """Return the factor for sampling, by bisection.

    At level 0 the sampler's recorded time with open requests must equal its simulated computing time; above level 0, in
    one process, the step times must be equal.
    """
    open_s = run.mean("time/step_s") * (1 - run.mean(IDLE))
    knows_idle = not run.placement.level and any(IDLE in metrics for metrics in run.steps)
    low, high = LEAST, MOST
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        tried = run.simulated(replace(costs, sampling=middle))
        is_short = (
            tried.sampler_busy_s - costs.transfer_s(1) < open_s
            if knows_idle
            else tried.step_s < run.mean("time/step_s")
        )
        low, high = (middle, high) if is_short else (low, middle)
    return math.sqrt(low * high)
