"""The `rl` command: evaluate, warm up, train by reinforcement learning, evaluate again, report."""

import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.advice import note_config_warnings
from slimrl.launch.parts import Parts, make_rl_parts, open_sinks
from slimrl.launch.placement import place
from slimrl.launch.run_dir import open_training_dir, with_pinned_model
from slimrl.launch.stages import initial_weights, make_orchestrator, reference_module, report, train_rl
from slimrl.launch.teacher import make_distillation
from slimrl.launch.warm_up import WarmUp, prepare_warm_up, warm_up, without_needless_warm_up
from slimrl.models.history import read_history
from slimrl.models.load import save_policy
from slimrl.monitor.console import RunConsole
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor, Sink
from slimrl.monitor.summary import Stage
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.state import TrainState, save_missing_weights, start
from slimrl.transport.base import Publish, Receive
from slimrl.transport.run_files import RunFiles
from slimrl.types import Metrics


def run_rl(resolved: Resolved[RLConfig], more_sinks: Sequence[Sink] = (), files: RunFiles | None = None) -> int:
    """Run the `rl` command: evaluate, warm up if the settings ask for it, train, evaluate again, plot and report.

    Everything that can be refused is made first, so that a mistake in the settings shows before anything slow begins.
    """
    began = time.monotonic()
    console, resolved = RunConsole(), with_pinned_model(resolved)
    config = without_needless_warm_up(place(resolved.config, console.note), console.note)
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        past = read_progress(output_dir) if config.resume else None
        first, earlier_s = (past.step, past.seconds) if past else (0, 0.0)
        sinks = open_sinks(resolved, output_dir, config.wandb, console, first)
        with Monitor(sinks) as monitor:
            # Make and check everything, which loads the model, too.
            parts = make_rl_parts(config, output_dir, console)
            reference = cache(lambda: reference_module(parts))  # loaded once, for a teacher and for a KL divergence
            orchestrator = (
                make_orchestrator(
                    config, output_dir, parts.tasksets, parts.context, make_distillation(parts, reference), console
                )
                if not files
                else None
            )
            warmup = prepare_warm_up(parts) if config.warmup.max_steps and not past else None

            note_config_warnings(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
            if config.warmup.max_steps:
                note_config_warnings(config.model, "warmup.optim.lr", config.warmup.optim.lr, console)
            if config.resume:
                console.note(f"resuming at step {first} of {config.max_steps}")

            # Evaluate, warm up, evaluate. RL starts from the weights that are there afterwards.
            stages, before = _stages_before_rl(parts, warmup, trained=past is not None)
            aux_losses = build_aux_losses(config.trainer.loss.resolve(), parts.policy.module, reference)
            state = start(parts.policy, config.trainer.optim, output_dir, config.resume, aux_losses)
            state.history = (*read_history(Path(initial_weights(parts))), "rl")
            save_missing_weights(state, output_dir)
            state.spend(time.monotonic() - began)  # so that a resumed run also counts the time before the first step

            # Train, and evaluate again. The console shows steps from here on, and not those of the warm-up.
            for sink in (console.steps(config.max_steps, first), *more_sinks):
                monitor.add(sink)
            collect, publish = _meeting(parts, orchestrator, state, files)
            train_rl(parts, collect, publish, state, monitor, before)
            stage, metrics = parts.held_out.measure("final", "after RL")
            monitor.log(config.max_steps, metrics)
        report(parts, [*stages, stage], time.monotonic() - began + earlier_s)
        console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
    return 0


def _meeting(
    parts: Parts, orchestrator: Orchestrator | None, state: TrainState, files: RunFiles | None
) -> tuple[Receive, Publish]:
    """Where batches come from, and how weights are published: by calls in this process, or by files to others."""
    if orchestrator:
        orchestrator.restore(state.progress.orchestrator_state)
        return orchestrator.collect, parts.engine.publish
    assert files
    files.clear()

    def publish(version: int) -> None:
        parts.engine.publish(version)
        save_policy(state.policy, files.weights_path(version), state.history)
        files.drop_weights_before(version - parts.config.max_async_level - 1)

    return files.receive, publish


def _stages_before_rl(parts: Parts, warmup: WarmUp | None, trained: bool) -> tuple[list[Stage], Metrics]:
    """Evaluate the base model, do the warm-up, and evaluate its result. A resumed run reads from disk what an earlier
    process measured; with `trained` RL has begun. Returns the stages for the closing table, and the metrics from right
    before RL."""
    stages: list[Stage] = []
    if parts.config.warmup.max_steps:
        first = "before warm-up" if read_history(Path(parts.config.model.name)) else "base model"
        stages.append((parts.held_out.recall("base") or parts.held_out.measure("base", first))[0])
    if warmup is not None:
        warm_up(parts, warmup)
    found = parts.held_out.recall("start")
    if found is None and trained and stages:
        raise UserError(
            f"{parts.output_dir / 'held_out' / 'start.json'} is missing or damaged. It was measured after the warm-up, "
            "and cannot be measured again, as training has begun. Copy it there from a backup, or begin anew in "
            "another `--output_dir`."
        )
    name = "after warm-up" if stages else "before RL"
    stage, metrics = found or parts.held_out.measure("start", name)
    return [*stages, stage], metrics
