"""The reinforcement-learning loop: receive, step, publish, log, save.

It knows nothing of environments, sampling or text: batches come from `receive` and weights leave through `publish`
(see `transport/base.py`), whether those are calls in this process or sockets. What a loss is stands in
`trainer/losses.py`, what a step does in `trainer/step.py`.
"""

import time
from pathlib import Path

from slimrl.config.run import RLConfig, TrainerOnlyConfig
from slimrl.models.allocator import HeapTrimmer
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.optim import schedule_factor
from slimrl.trainer.state import TrainState, peak_memory_gb, save_if_due
from slimrl.trainer.step import StepRefusedError, TrainStep
from slimrl.transport.base import Publish, Receive


def train(
    state: TrainState, config: RLConfig | TrainerOnlyConfig, receive: Receive, publish: Publish, monitor: Monitor
) -> None:
    """Train from where `state` stands to `max_steps`. Step n is made from weight version n and logged as n."""
    train_step = TrainStep(
        state.policy.module, state.optimizer, config.trainer, config.seq_len, state.aux_losses, state.ranks
    )
    publish(state.progress.step)
    heap_trimmer = HeapTrimmer()

    for step in range(state.progress.step, config.max_steps):
        began = time.perf_counter()
        batch = receive(step)
        received = time.perf_counter()

        lr_factor = schedule_factor(step, config.max_steps, config.trainer.schedule)
        try:
            metrics = train_step(batch, lr_factor, version=step)
        except StepRefusedError as refusal:
            monitor.log(step, batch.metrics | refusal.metrics)
            raise
        publish(step + 1)
        ended = time.perf_counter()

        metrics |= {"time/step_s": ended - began, "time/train_s": ended - received, "version/policy": float(step)}
        metrics["perf/tokens_trained_per_s"] = metrics.get("loss/tokens", 0.0) / (ended - received)
        metrics["memory/peak_gb"] = peak_memory_gb(state.policy.device)
        monitor.log(step, batch.metrics | metrics)
        state.advance(batch.data_position, ended - began, batch.role_means)
        save_if_due(state, Path(config.output_dir), config.max_steps, config.ckpt)
        heap_trimmer.trim()
