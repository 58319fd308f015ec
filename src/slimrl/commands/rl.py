"""The `rl` command: evaluate, warm up, train by reinforcement learning, evaluate again, report.

In one process all of it happens here. As processes, `rl` starts three and watches them, of which the trainer does what
stands here, and waits for the orchestrator wherever something is sampled.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch import nn

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.held_out import stage_path
from slimrl.launch.parts import TrainerParts, make_rl_parts, open_policy, open_sinks, restore_measured
from slimrl.launch.placement import device_of, place
from slimrl.launch.run_dir import initial_weights, open_training_dir, with_pinned_model
from slimrl.launch.sampling import BASE, FINAL, START, Sampling, SamplingElsewhere, SamplingHere, base_name, start_name
from slimrl.launch.stages import reference_module, report, train_rl
from slimrl.launch.supervision import supervise
from slimrl.launch.tasksets import load_tasksets
from slimrl.launch.teacher import beside_the_policy, make_distillation
from slimrl.launch.warm_up import WarmUp, prepare_warm_up, warm_up, without_needless_warm_up
from slimrl.launch.weights import PublishedWeights
from slimrl.models.device import dtype_name
from slimrl.models.history import read_history
from slimrl.monitor.console import RunConsole
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor, Sink
from slimrl.monitor.summary import Stage
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import Progress, read_progress
from slimrl.trainer.state import save_missing_weights, start
from slimrl.transport.roster import Roster
from slimrl.transport.run_files import RunFiles
from slimrl.types import Metrics


def run_rl(resolved: Resolved[RLConfig], more_sinks: Sequence[Sink] = ()) -> int:
    """Run the `rl` command: evaluate, warm up if the settings ask for it, train, evaluate again, plot and report.

    Everything that can be refused is made first, so that a mistake in the settings shows before anything slow begins.
    """
    began, console = time.monotonic(), RunConsole()
    resolved = with_pinned_model(resolved)
    config = without_needless_warm_up(place(resolved.config, console.note), console.note)
    if config.deployment.type == "processes":
        return supervise(config, resolved.argv, console.note)
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        past = read_progress(output_dir) if config.resume else None
        with Monitor(open_sinks(resolved, output_dir, config.wandb, console, past.step if past else 0)) as monitor:
            # Make and check everything, which loads the model, too.
            parts = make_rl_parts(config, output_dir, console)
            reference = cache(lambda: reference_module(parts))  # loaded once, for a teacher and for a KL divergence
            sampling = SamplingHere(parts, make_distillation(parts.sampling, beside_the_policy(parts, reference)))
            warmup = prepare_warm_up(parts, parts.tasksets) if config.warmup.max_steps and not past else None
            run = Run(parts, sampling, reference, past, began)
            stages = run.train(warmup, monitor, more_sinks)
        run.report(stages)
    return 0


def run_trainer_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `trainer` command on a file of `rl`: train on what an orchestrator collects in another process."""
    began, console = time.monotonic(), RunConsole()
    resolved = with_pinned_model(resolved)
    config = device_of(place(resolved.config, console.note, "trainer"), "trainer")
    config = without_needless_warm_up(config, console.note)
    roster = Roster(Path(config.output_dir))
    with (
        open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir,
        roster.reserve("trainer") as entry,
    ):
        past = read_progress(output_dir) if config.resume else None
        with Monitor(open_sinks(resolved, output_dir, config.wandb, console, past.step if past else 0)) as monitor:
            policy = open_policy(restore_measured(config.model, output_dir, config.resume), console)
            parts = TrainerParts(config, output_dir, policy, console)
            files = RunFiles(output_dir, config.deployment.timeout_s, console.note, roster)
            sampling = SamplingElsewhere(parts, files, PublishedWeights(config, policy, files))
            warmup = None
            if config.warmup.max_steps and not past:
                tasksets = load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s)
                warmup = prepare_warm_up(parts, tasksets)
            # The others may begin now: nothing of an earlier process is left that they could take for this one's.
            sampling.clear(past.step if past else 0)
            roster.announce(entry, {"dtype": dtype_name(policy.dtype)})
            run = Run(parts, sampling, cache(lambda: reference_module(parts)), past, began)
            stages = run.train(warmup, monitor, ())
        run.report(stages)
    return 0


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
            console.note(f"resuming at step {first} of {config.max_steps}")

        # Evaluate, warm up, evaluate. RL starts from the weights that are there afterwards.
        stages, before = self._stages_before_rl(warmup)
        aux_losses = build_aux_losses(config.trainer.loss.resolve(), parts.policy.module, self.reference)
        state = start(parts.policy, config.trainer.optim, parts.output_dir, config.resume, aux_losses)
        state.history = (*read_history(Path(initial_weights(parts.config))), "rl")
        save_missing_weights(state, parts.output_dir)
        state.spend(time.monotonic() - self.began)  # so that a resumed run also counts the time before the first step

        # Train, and evaluate again. The console shows steps from here on, and not those of the warm-up.
        for sink in (console.steps(config.max_steps, first), *more_sinks):
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
