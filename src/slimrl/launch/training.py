"""What the trainer does in a run: have the model evaluated, warm up, train, have it evaluated again, report.

Where batches and evaluations come from is behind `Sampling` (`launch/sampling.py`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from slimrl.errors import UserError
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.held_out import stage_path
from slimrl.launch.hooks import end_hooks
from slimrl.launch.parts import TrainerParts
from slimrl.launch.run_dir import initial_weights, warmup_directory
from slimrl.launch.run_lock import EVALUATION, METRICS, holds
from slimrl.launch.sampling import BASE, FINAL, START, Sampling, base_name, start_name
from slimrl.launch.stages import report, train_rl
from slimrl.launch.warm_up import WarmUp, warm_up
from slimrl.models.history import read_history
from slimrl.monitor.environment_share import EnvironmentShare
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor, Sink, read_metrics
from slimrl.monitor.summary import Stage
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import Progress
from slimrl.trainer.state import save_missing_weights, start
from slimrl.types import Metrics


@dataclass(frozen=True, slots=True)
class Run:
    """What the trainer does in a run. `past` is the progress that it goes on from, and `began` the moment at which this
    process did."""

    parts: TrainerParts
    sampling: Sampling
    reference: Callable[[], nn.Module]
    past: Progress | None
    began: float

    def train(self, warmup: WarmUp | None, monitor: Monitor, more_sinks: Sequence[Sink]) -> list[Stage]:
        """Warm up, train, and have it evaluated before and after. Returns the stages for the closing table."""
        parts, config, console = self.parts, self.parts.config, self.parts.console
        first = self.past.step if self.past else 0
        note_config_warnings(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
        if config.warmup.max_steps:
            note_config_warnings(config.model, "warmup.optim.lr", config.warmup.optim.lr, console)
        if config.resume:
            resumed = f"resuming after step {first} of {config.max_steps}"
            console.note(resumed if self.past else describe_restart(parts.output_dir))

        # Evaluate, warm up, evaluate. RL starts from the weights that are there afterwards.
        stages, before = self._stages_before_rl(warmup)
        aux_losses = build_aux_losses(config.trainer.loss.resolve(), parts.policy.module, self.reference)
        state = start(parts.policy, config.trainer.optim, parts.output_dir, config.resume, aux_losses, parts.ranks)
        state.history = (*read_history(Path(initial_weights(parts.config))).trained, "rl")
        save_missing_weights(state, parts.output_dir)
        state.spend(time.monotonic() - self.began)  # so that a resumed run also counts the time before the first step

        # Train, and evaluate again. The console shows steps from here on, and not those of the warm-up.
        display = console.steps(config.max_steps, first, before=_rewards_before(parts.output_dir, first))
        if not config.max_async_level:
            monitor.add(EnvironmentShare(console.note))
        for sink in (display, *more_sinks):
            monitor.add(sink)
        train_rl(parts, self.sampling, state, monitor, before)
        stage, metrics = self.sampling.measure(*FINAL)
        monitor.log(config.max_steps, metrics)
        return [*stages, stage]

    def report(self, stages: Sequence[Stage]) -> None:
        """Show and save what came out."""
        earlier_s = self.past.seconds if self.past else 0.0
        report(self.parts, stages, time.monotonic() - self.began + earlier_s)
        self.parts.console.note(f"plots: {', '.join(map(str, plot_run(self.parts.output_dir)))}")
        end_hooks(self.parts.output_dir, self.parts.config.max_steps, self.parts.console)

    def _stages_before_rl(self, warmup: WarmUp | None) -> tuple[list[Stage], Metrics]:
        """Evaluate the base model, do the warm-up, and evaluate its result. A resumed run reads from disk what an
        earlier process measured. Returns the stages for the closing table, and the metrics from right before RL."""
        stages: list[Stage] = []
        sampling, config = self.sampling, self.parts.config
        if config.warmup.max_steps:
            stages.append((sampling.recall(BASE) or sampling.measure(BASE, base_name(config)))[0])
        if warmup is not None:
            warm_up(self.parts, warmup, sampling)
        found = sampling.recall(START)
        if found is None and self.past and stages:
            raise UserError(
                f"{stage_path(self.parts.output_dir, START)} is missing or damaged. It was measured after the warm-up, "
                "and cannot be measured again, as training has begun. Copy it there from a backup, or begin anew in "
                "another `--output_dir`."
            )
        if not self.past:
            sampling.publish(0)
        stage, metrics = found or sampling.measure(START, start_name(config))
        return [*stages, stage], metrics


def describe_restart(output_dir: Path) -> str:
    """The note of a resumed run without a checkpoint of RL, with the earlier stages that it keeps."""
    stages = {"the warm-up": str(warmup_directory(Path()) / "checkpoints"), "the evaluations before RL": EVALUATION}
    kept = [stage for stage, directory in stages.items() if holds(output_dir, (directory,))]
    if not kept:
        return f"{output_dir} has no checkpoint to resume from: the run begins anew"
    return f"no checkpoint of RL yet in {output_dir}: RL begins anew; {' and '.join(kept)} are kept"


def _rewards_before(output_dir: Path, first: int) -> list[float]:
    """The mean rewards of the steps before a resumption."""
    path = output_dir / METRICS
    lines = read_metrics(path) if first and path.exists() else ()
    return [metrics["reward/mean"] for step, metrics in lines if step < first and "reward/mean" in metrics]
