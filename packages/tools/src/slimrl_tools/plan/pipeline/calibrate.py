"""What the work costs, from a recorded run: a plan's speeds, stretched until the model takes as long as the run did.

One number for sampling and one for training are fitted, and, of a run whose parts were processes, what batches and
weights take on their way. A run at level 0 tells them apart, as nothing overlaps in it; so does any run in one process.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slimrl.errors import UserError
from slimrl.types import Metrics
from slimrl_tools.plan.pipeline.episodes import RecordedEpisodes
from slimrl_tools.plan.pipeline.model import simulate
from slimrl_tools.plan.pipeline.placement import Costs, Placement, Recipe
from slimrl_tools.plan.timing import Speeds

NEEDED = "time/step_s", "time/train_s", "time/rollout_s"
IDLE = "async/sampler_idle"
SIMULATED_STEPS = 40
ROUNDS = 12
LEAST, MOST = 1e-3, 1e3  # times the planned speeds


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that was made: where and how, what it played, and the metrics of its steps without the first."""

    placement: Placement
    recipe: Recipe
    episodes: RecordedEpisodes
    steps: Sequence[Metrics]

    def mean(self, name: str) -> float:
        """The mean of a metric over the steps that have it, 0 if none has."""
        values = [metrics[name] for metrics in self.steps if name in metrics]
        return statistics.fmean(values) if values else 0.0


def calibrate(speeds: Speeds, run: RecordedRun) -> Costs:
    """The costs by which the model takes as long as the run over its own placement. Raises UserError for a run that
    does not tell: without times, or with processes above level 0, in which sampling hides behind training."""
    missing = [name for name in NEEDED if not any(name in metrics for metrics in run.steps)]
    if missing:
        raise UserError(f"the run's metrics.jsonl lacks {', '.join(missing)}: let the run make a few steps more.")
    if run.placement.kind == "processes" and run.placement.level:
        raise UserError(
            "this run sampled while it trained (processes, max_async_level above 0), so its times do not tell how "
            "fast each half is alone. Name a run with max_async_level = 0, or estimate a device's speeds by --on."
        )
    costs = Costs(speeds, source="stretched to the times of the run")
    if run.placement.kind == "processes":
        weights_s, batch_s = _on_the_way(run)
        costs = replace(costs, weights_s=weights_s, batch_s=batch_s)
    train_s = simulate(run.placement, run.recipe, costs, run.episodes, SIMULATED_STEPS).train_s
    costs = replace(costs, training=run.mean("time/train_s") / max(1e-9, train_s))
    return replace(costs, sampling=_stretch(run, costs))


def _on_the_way(run: RecordedRun) -> tuple[float, float]:
    """What the weights take to the sampler, and the batches to the trainer: what of a step is neither sampling nor
    training."""
    rest = max(0.0, run.mean("time/step_s") - run.mean("time/rollout_s") - run.mean("time/train_s"))
    weights_s = min(rest, max(0.0, run.mean("time/wait_weights_s") - run.mean("time/train_s")))
    return weights_s, rest - weights_s


def _stretch(run: RecordedRun, costs: Costs) -> float:
    """The factor for sampling, by bisection: a larger one takes longer. At level 0 the sampler had a request open for
    as long as it computes in the model, whatever environments took; above, in one process, a step has to take as
    long."""
    open_s = run.mean("time/step_s") * (1 - run.mean(IDLE))
    knows_idle = not run.placement.level and any(IDLE in metrics for metrics in run.steps)
    low, high = LEAST, MOST
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        tried = simulate(run.placement, run.recipe, replace(costs, sampling=middle), run.episodes, SIMULATED_STEPS)
        is_short = (
            tried.sampler_busy_s - costs.transfer_s(1) < open_s
            if knows_idle
            else tried.step_s < run.mean("time/step_s")
        )
        low, high = (middle, high) if is_short else (low, middle)
    return math.sqrt(low * high)
