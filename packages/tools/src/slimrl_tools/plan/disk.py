"""Estimates the bytes that a run writes: checkpoints, weights, rollouts."""

from collections.abc import Sequence

from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.plan.demand import FLOAT, Demand
from slimrl_tools.plan.memory import Part
from slimrl_tools.plan.workload import Workload

TOKENIZER = 6_000_000  # beside each copy of the weights
A_TOKEN, A_ROLLOUT = 30, 1500  # bytes of a recorded rollout: its text, ids, log-probabilities, messages, metrics


def disk_parts(config: RLConfig | SFTConfig, demand: Demand, workload: Workload) -> Sequence[Part]:
    """Return the largest use of the disk: `ckpt.keep` checkpoints of 12 bytes per trained weight and as many copies of
    the weights, plus one of each while it is written, the weights named `best`, and every rollout. A warm-up keeps its
    own."""
    checkpoint = demand.checkpoint + demand.moments
    adapter = FLOAT * demand.num_trained if demand.is_adapter else 0  # beside the weights that it is merged into
    weights = demand.weights + TOKENIZER + adapter

    def num_kept(steps: int) -> int:
        # One is written before the oldest is deleted.
        written = 1 + (steps - 1) // config.ckpt.interval_steps if config.ckpt.interval_steps else 1
        return min(config.ckpt.keep + 1, written)

    num = num_kept(config.max_steps)
    parts = [Part(f"{num} checkpoints", num * checkpoint), Part(f"{num + 1} x weights", (num + 1) * weights)]
    if isinstance(config, SFTConfig):
        return parts
    if steps := config.warmup.max_steps:
        kept = num_kept(steps) * (checkpoint + weights)
        parts.append(Part("checkpoints and weights of the warm-up", kept))
    evaluated = 3 * config.eval.num_examples * len(config.eval.temperatures)
    rollouts = config.max_steps * workload.num + evaluated
    parts.append(Part("rollouts", rollouts * (A_ROLLOUT + A_TOKEN * workload.mean_length)))
    return parts
