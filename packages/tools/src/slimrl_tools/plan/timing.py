"""Estimates the duration of a step and of a run from the speeds of a machine, and names the bottleneck.

`Speeds` are measured (`plan/measure.py`), or derived from a device's bandwidth and operations by `rough_speeds`.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.plan.devices import Device
from slimrl_tools.plan.memory import FLOAT, HALF, Demand
from slimrl_tools.plan.workload import Row, Workload

# The shares of a device's bandwidth and of its operations per second that a run reaches. "plain" is a CPU without
# slimrl's kernels. The shares of a CPU were measured with reverse_text on two cores. The shares of a GPU are usual for
# transformers' layers, and were not measured.
REACHED = {"cpu": (0.9, 0.75), "plain": (0.45, 0.375), "cuda": (0.6, 0.35)}
# Bytes per token, layer and hidden unit whose transfer takes as long as all operations but the matrix products:
# attention, norms, activations, copies. They count where products are fast. Measured like the shares of a CPU, with AMX
# and with AVX512-BF16.
BYTES_DECODED, BYTES_PREFILLED, BYTES_TRAINED = 500, 90, 800
# Overhead of one engine step: Python, and on a GPU the kernel launches and a wait for the GPU.
DECODE_OVERHEAD_S = {"cpu": 1e-3, "plain": 1e-3, "cuda": 2.5e-3}
# Seconds per layer and pack to launch its operations, forward and backward, for any number of tokens.
LAUNCHES_S = {"cpu": 0.0, "plain": 0.0, "cuda": 2.5e-3}
LOAD_S = 8.0  # seconds to import modules and to load the weights
DISK = 3e8  # bytes per second of synced writes
SAMPLING = "new weights for the engine", "decoding", "prefill", "environments"  # the parts of a step before training


@dataclass(frozen=True, slots=True)
class Speeds:
    """Seconds per piece of work. For sampling: a decoding step (`decode_step`), each sequence in this step
    (`decode_row`), a prefilled token, and the engine's preparation for new weights (`copy`). For training: a token of a
    row (`train`), the logits of a trained token (`head`), an attended pair of tokens (`attend`), the overhead of a
    pack, and an update of the weights. `source` is the origin of the numbers."""

    decode_step: float = 0.0
    decode_row: float = 0.0
    prefill: float = 0.0
    train: float = 0.0
    update: float = 0.0
    source: str = ""
    pack: float = 0.0
    head: float = 0.0
    attend: float = 0.0
    copy: float = 0.0

    def row_s(self, row: Row) -> float:
        """Return the seconds of forward and backward passes over a row."""
        return row.tokens * self.train + row.trained * self.head + row.pairs * self.attend


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one training step by activity, and of the whole run by stage."""

    step: Mapping[str, float]
    run: Mapping[str, float]
    overlaps: bool = False  # True if sampling and training run at once

    @property
    def step_s(self) -> float:
        """Return the seconds of a step."""
        sampling = sum(seconds for name, seconds in self.step.items() if name in SAMPLING)
        training = sum(self.step.values()) - sampling
        return max(sampling, training) if self.overlaps else sampling + training

    @property
    def run_s(self) -> float:
        """Return the seconds of the whole run."""
        return sum(self.run.values())

    @property
    def bottleneck(self) -> str:
        """Return the activity that takes most of a step."""
        return max(self.step, key=lambda name: self.step[name])


def rough_speeds(demand: Demand, device: Device, workload: Workload) -> Speeds:
    """Estimate the speeds from a device's bandwidth B and operations per second F, each multiplied by the share that a
    run reaches.

    A decoding step reads the A active weights in b A / B. Each sequence in it adds 2 A / F and the time to read its
    keys and values. All operations but the products take the time of a transfer (`BYTES_TRAINED`). A token of a
    training row costs 6 A / F, or 4 A / F with an adapter, as frozen matrices need no gradients. Recomputed layers add
    2 A / F. Only trained tokens need the head. The update reads and writes 14 bytes per trained weight.
    """
    shape, compute = demand.shape, demand.compute
    way = "plain" if compute.kind == "cpu" and not compute.has_kernels else compute.kind
    bandwidth_share, flops_share = REACHED[way]
    bandwidth = bandwidth_share * device.bandwidth
    flops = flops_share * (device.flops if compute.bytes == HALF else device.float_flops)
    keys = 2 * compute.bytes * shape.layers * shape.key * workload.mean_length
    logits = 3 * FLOAT * shape.vocab
    passes = (4 if demand.is_adapter else 6) + 2 * demand.recompute
    again = 2 * 3 * shape.layers * shape.hidden * shape.inner if demand.is_fused else 0  # the fused MLP recomputes them
    units = shape.layers * shape.hidden / bandwidth
    return Speeds(
        decode_step=compute.bytes * shape.active / bandwidth + DECODE_OVERHEAD_S[way],
        decode_row=2 * shape.active / flops + (keys + logits) / bandwidth + BYTES_DECODED * units,
        prefill=2 * shape.active / flops + BYTES_PREFILLED * units,
        train=(passes * (shape.active - shape.head) + again) / flops + BYTES_TRAINED * units,
        update=2 * 14 * demand.num_trained / bandwidth,
        source="estimated from bandwidth and operations",
        pack=LAUNCHES_S[way] * shape.layers,
        head=passes * shape.head / flops,
        attend=12 * shape.layers * shape.query / flops,
    )


def times_of(config: RLConfig | SFTConfig, demand: Demand, workload: Workload, speeds: Speeds) -> Times:
    """Return the times of a step and of a run."""
    row, ranks = workload.row, 1
    if isinstance(config, RLConfig) and config.deployment.are_apart:
        ranks = len(config.trainer_gpu_ids) or 1  # ranks on a CPU share its cores
    step = {
        "forward and backward": (speeds.row_s(row) + demand.rows.num * speeds.pack) / ranks,
        "update": speeds.update / ranks,
    }
    run, overlaps = {"loading": LOAD_S}, False
    if isinstance(config, RLConfig):
        waves = workload.waves(config.orchestrator.rollouts_per_example, config.orchestrator.resample_factor)
        sampling = _rollout_times(config.inference.max_slots, waves, workload, speeds)
        episodes = config.eval.num_examples * len(config.eval.temperatures)
        # Evaluations before the warm-up, before RL, during RL and after the last step.
        num = 2 + bool(config.warmup.max_steps) + sum(config.eval.is_due(step) for step in range(config.max_steps))
        run[f"{num} evaluations of {episodes} episodes"] = num * sum(sampling.values()) * episodes / sum(waves)
        if steps := config.warmup.max_steps:
            each = speeds.row_s(workload.distinct_row(config.warmup.batch_size)) + speeds.update + speeds.pack
            run[f"{steps} steps of warm-up"] = steps * each / ranks
        if config.trainer.loss.resolve(config.has_teacher).kl_beta:
            step["forward and backward"] *= 4 / 3
        if demand.scored:
            scorer = next(iter(demand.references.values()), demand.shape)
            step["the teacher's scores"] = speeds.row_s(row) / 3 * scorer.active / demand.shape.active
        trainers = set(config.trainer_gpu_ids)
        are_apart = config.deployment.are_apart and not trainers & set(config.inference_gpu_ids)
        overlaps = are_apart and config.async_level > 0 and bool(trainers)
        step = sampling | step
    times = Times(step, run, overlaps)
    interval = config.ckpt.interval_steps
    num = 1 + (config.max_steps - 1) // interval if interval else 1
    run[f"{config.max_steps} steps"] = config.max_steps * times.step_s
    run[f"{num} checkpoints"] = num * (12 * demand.num_trained + demand.weights) / DISK
    return times


def _rollout_times(slots: int, waves: Sequence[float], workload: Workload, speeds: Speeds) -> dict[str, float]:
    """Return the seconds of sampling by activity. Rollouts are decoded together, and their number falls as rollouts
    finish."""
    replies = workload.replies
    lengths = [sum(one) for one in replies]
    # The number of tokens that a rollout has sampled after each turn except the last.
    turn_ends = [end for one in replies for end in itertools.accumulate(one[:-1])]
    decoding = prefill = 0.0
    for num in waves:
        rounds = max(1.0, num / slots)  # without a free slot, a rollout starts when another one finishes
        rows_s = speeds.decode_row * min(slots, num) / len(lengths) * sum(lengths)
        decoding += rounds * (speeds.decode_step * max(lengths) + rows_s)
        # An observation is prefilled when it arrives, alone or with few others. Each such prefill reads all weights.
        passes = min(len(set(turn_ends)), len(turn_ends) * num / len(lengths))
        prefill += passes * speeds.decode_step + num / workload.num * workload.num_prefilled * speeds.prefill
    times = {"new weights for the engine": speeds.copy, "decoding": decoding, "prefill": prefill}
    return times | {"environments": workload.env_s * sum(waves)}
