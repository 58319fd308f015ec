"""Runs the trainer's stages of a run: evaluate the model, warm up, train, evaluate again, report.

The interface `Sampling` (`launch/sampling.py`) provides batches and evaluations, from this process or from others. A
resumed run can continue at each stage.
"""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.reading.saved import config_toml
from slimrl.config.rollout import EvalSamplingConfig, InferenceConfig
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.environments.base import CONSTANT
from slimrl.environments.find import NOTEBOOK
from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.io.invocation import command_prefix
from slimrl.io.run_dir import RunDir
from slimrl.launch.advice import EnvironmentShare
from slimrl.launch.extensions import end_hooks
from slimrl.launch.held_out import recall_stage
from slimrl.launch.open_dir import initial_weights
from slimrl.launch.parts import TrainerParts
from slimrl.launch.sampling import BASE, FINAL, START, Sampling, base_name, stage_after, start_name
from slimrl.launch.supervised import WarmUp, warm_up
from slimrl.models.device import dtype_name
from slimrl.models.history import read_history
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import Monitor, Sink, read_metrics
from slimrl.monitor.summary import Prediction, RunSummary, Stage, recall_prediction, show_summary, write_summary
from slimrl.trainer.aux_losses import build_aux_losses
from slimrl.trainer.checkpoint import Progress
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import TrainState, peak_memory_gb, save_missing_weights, start
from slimrl.transport.base import Batch
from slimrl.types import Metrics


@dataclass(frozen=True, slots=True)
class Run:
    """The trainer's stages of a run. `past` is the progress of earlier processes, or None. `began` is the start of this
    process, in seconds of the monotonic clock."""

    parts: TrainerParts
    sampling: Sampling
    past: Progress | None
    began: float

    def train(self, warmup: WarmUp | None, monitor: Monitor, more_sinks: Sequence[Sink]) -> list[Stage]:
        """Warm up and train, with evaluations before and after. Returns the stages for the closing table."""
        parts, config, console = self.parts, self.parts.config, self.parts.console
        first = self.past.step if self.past else 0
        if config.resume:
            resumed = f"resuming after step {first} of {config.max_steps}"
            console.note(resumed if self.past else f"no checkpoint of RL yet in {parts.output_dir}: RL begins anew")

        # Evaluate, warm up, evaluate. RL starts from the resulting weights.
        stages, before = self._stages_before_rl(warmup)
        aux_losses = build_aux_losses(config.trainer.loss.resolve(), parts.policy.module, lambda: parts.reference)
        state = start(parts.policy, config.trainer.optim, parts.output_dir, config.resume, aux_losses, parts.ranks)
        state.history = (*read_history(Path(initial_weights(parts.config))).trained, "rl")
        save_missing_weights(state, parts.output_dir)
        state.spend(time.monotonic() - self.began)  # so that a resumed run also counts the time before the first step

        # Train, and evaluate again. From now on the console shows training steps of RL.
        display = console.steps(config.max_steps, first)
        if not config.async_level:
            monitor.add(EnvironmentShare(console.note))
        for sink in (display, *more_sinks):
            monitor.add(sink)
        train_rl(parts, self.sampling, state, monitor, before)
        stage, metrics = self.sampling.measure(*FINAL)
        monitor.log(config.max_steps, metrics)
        return [*stages, stage]

    def report(self, stages: Sequence[Stage]) -> None:
        """Show and save the results."""
        earlier_s = self.past.seconds if self.past else 0.0
        report(self.parts, stages, time.monotonic() - self.began + earlier_s)
        self.parts.console.note(f"plots: {', '.join(map(str, plot_run(self.parts.output_dir)))}")
        end_hooks(self.parts.output_dir, self.parts.config.max_steps, self.parts.console)

    def _stages_before_rl(self, warmup: WarmUp | None) -> tuple[list[Stage], Metrics]:
        """Evaluate the base model, warm up, and evaluate the result. A resumed run reads finished evaluations from the
        disk. Returns the stages for the closing table, and the metrics of the last evaluation before RL."""
        stages: list[Stage] = []
        parts, sampling, config = self.parts, self.sampling, self.parts.config
        recall = partial(recall_stage, parts.output_dir, note=parts.console.note)
        if config.warmup.max_steps:
            stages.append((recall(BASE) or sampling.measure(BASE, base_name(config)))[0])
        if warmup is not None:
            warm_up(parts, warmup, sampling)
        found = recall(START)
        if found is None and self.past and (stages or config.deployment.are_apart):
            # The weights after the warm-up are gone. Samplers in other processes have those of the checkpoint.
            raise UserError(
                f"{RunDir(parts.output_dir).stage(START)} is missing or damaged, and cannot be measured again, as "
                "training has begun. Copy it there from a backup, or begin anew in another `--output_dir`."
            )
        if not self.past:
            sampling.publish(0)
        stage, metrics = found or sampling.measure(START, start_name(config))
        return [*stages, stage], metrics


def train_rl(parts: TrainerParts, sampling: Sampling, state: TrainState, monitor: Monitor, before: Metrics) -> None:
    """Train with RL to the last step. `before` are the held-out metrics of the evaluation before training. These
    metrics are logged with step 0."""

    def receive(step: int) -> Batch:
        held_out = before if step == 0 else _evaluate_if_due(parts, sampling, step)
        batch = sampling.receive(step)
        if not batch.samples:
            parts.console.note(
                f"step {step + 1}: no group carries a signal, so there is nothing to learn from", "yellow"
            )
        return replace(batch, metrics=batch.metrics | held_out)

    train(state, parts.config, receive, sampling.publish, monitor)
    sampling.close()


def _evaluate_if_due(parts: TrainerParts, sampling: Sampling, step: int) -> Metrics:
    if not parts.config.eval.is_due(step):
        return {}
    began = time.perf_counter()
    _, metrics = sampling.measure(*stage_after(step))
    return metrics | {"time/eval_s": time.perf_counter() - began}


def report(parts: TrainerParts, stages: Sequence[Stage], duration_s: float) -> None:
    """Show the closing table, write it to summary.json, and write a settings file that evaluates the weights again."""
    run = RunDir(parts.output_dir)
    lines = [metrics for _, metrics in read_metrics(run.metrics)]
    weights = run.weights_of(parts.config.max_steps)
    seconds = [line["time/step_s"] for line in lines if "time/step_s" in line]
    measured = Prediction(peak_memory_gb(parts.policy.device), median(seconds) if seconds else 0.0)
    summary = RunSummary(
        stages=tuple(stages),
        duration_s=duration_s,
        tokens_sampled=int(sum(line.get("rollout/tokens_sampled", 0.0) for line in lines)),
        tokens_trained=int(sum(line.get("loss/tokens", 0.0) for line in lines)),
        weights=weights,
        command=_evaluate_command(_write_eval_file(parts, weights), parts.config),
        view=f"{command_prefix()}slimrl view {shlex.quote(str(parts.output_dir))}",
        baseline=found[0] if (found := recall_stage(parts.output_dir, CONSTANT, parts.console.note)) else None,
        predicted=recall_prediction(parts.output_dir),
        measured=measured,
    )
    write_summary(run.summary, summary)
    show_summary(parts.console, summary)


def _evaluate_command(path: Path, config: RLConfig) -> str:
    if any(env.id.startswith(f"{NOTEBOOK}:") for env in config.orchestrator.env):
        return f'slimrl.evaluate("{path}")'
    return f"{command_prefix()}slimrl eval @ {path}"


def _write_eval_file(parts: TrainerParts, weights: Path) -> Path:
    """Write a settings file with which `eval` repeats the final evaluation, and return its path. On the same machine
    the result is exactly equal."""
    config, episodes = parts.config, parts.config.orchestrator
    date = parts.policy.chat.date
    changes = {"name": str(weights), "dtype": dtype_name(parts.policy.dtype), "lora": LoraConfig()}
    changes |= {"date": date.isoformat()} if date else {}
    again = EvalRunConfig(
        model=config.model.model_copy(update=changes),
        env=episodes.env,
        num_examples=config.eval.num_examples,
        temperatures=config.eval.temperatures,
        sampling=EvalSamplingConfig(max_tokens=episodes.sampling.max_tokens, stop=episodes.sampling.stop),
        max_turns=episodes.max_turns,
        episode_timeout_s=episodes.episode_timeout_s,
        seq_len=config.seq_len,
        inference=InferenceConfig(max_slots=config.inference.max_slots),  # in one process, wherever the run sampled
        output_dir=str(parts.output_dir / "eval"),
        seed=config.seed,
    )
    path = parts.output_dir / "eval.toml"
    replace_file(path, [config_toml(Resolved(again, {})).encode()])
    return path
