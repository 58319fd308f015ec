"""The reinforcement-learning loop: receive a batch, update the weights, publish them, log, save.

The loop does not depend on environments, sampling or text. It calls `receive` for batches and `publish` for weights
(`transport/base.py`). Both may be calls within this process, or use sockets. The loss is in `trainer/losses.py`, the
training step in `trainer/step.py`.

`torchrun src/slimrl/trainer/rl/train.py @ FILE` runs the command `trainer` (`commands/trainer.py`).
"""

import sys
import time
from pathlib import Path

from slimrl.config.run import RLConfig, TrainerOnlyConfig
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.optim import schedule_factor
from slimrl.trainer.state import TrainState, peak_memory_gb, save_if_due
from slimrl.trainer.step import StepRefusedError, TrainStep
from slimrl.trainer.token_log import TokenLog
from slimrl.transport.base import Publish, Receive


def train(
    state: TrainState, config: RLConfig | TrainerOnlyConfig, receive: Receive, publish: Publish, monitor: Monitor
) -> None:
    """Train from the state's step to `max_steps`. Step n turns weight version n into version n + 1, and is logged as n.

    Raises StepRefusedError, after logging, if the log-probabilities of a batch cannot be trusted (`trainer/step.py`).
    """
    train_step = TrainStep(
        state.policy.module, state.optimizer, config.trainer, config.seq_len, state.aux_losses, state.ranks
    )
    token_log = TokenLog(Path(config.output_dir), state.ranks)
    publish(state.progress.step)

    for step in range(state.progress.step, config.max_steps):
        began = time.perf_counter()
        batch = receive(step)
        received = time.perf_counter()
        lr_factor = schedule_factor(step, config.max_steps, config.trainer.schedule)
        try:
            metrics = train_step(batch, lr_factor, step, token_log)
        except StepRefusedError as refusal:
            monitor.log(step, batch.metrics | refusal.metrics)
            raise
        publish(step + 1)
        ended = time.perf_counter()

        metrics |= {"time/step_s": ended - began, "time/train_s": ended - received, "version/policy": float(step)}
        metrics["perf/tokens_trained_per_s"] = metrics.get("loss/tokens", 0.0) / (ended - received)
        metrics["memory/peak_gb"] = peak_memory_gb(state.policy.device)
        monitor.log(step, batch.metrics | metrics)
        state.advance(ended - began, batch.orchestrator_state)
        save_if_due(state, Path(config.output_dir), config.max_steps, config.ckpt)


if __name__ == "__main__":
    from slimrl.cli import trainer

    sys.exit(trainer())
