"""The stages of the `rl` command after the warm-up: train, evaluate, report. A resumed run can enter each again."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from torch import nn

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.reading.write import config_toml
from slimrl.config.rollout import EvalSamplingConfig, InferenceConfig
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.environments.base import CONSTANT
from slimrl.environments.find import NOTEBOOK
from slimrl.io.files import replace_file
from slimrl.io.invocation import command_prefix
from slimrl.launch.held_out import recall_stage
from slimrl.launch.parts import TrainerParts
from slimrl.launch.run_dir import initial_weights
from slimrl.launch.run_lock import METRICS
from slimrl.launch.sampling import Sampling, stage_after
from slimrl.models.device import dtype_name
from slimrl.models.load import load_policy
from slimrl.monitor.sinks import Monitor, read_metrics
from slimrl.monitor.summary import Prediction, RunSummary, Stage, recall_prediction, show_summary, write_summary
from slimrl.trainer.fsdp import shard
from slimrl.trainer.rl.train import train
from slimrl.trainer.state import TrainState, peak_memory_gb
from slimrl.trainer.weights import weights_directory
from slimrl.transport.base import Batch
from slimrl.types import Metrics


def reference_module(parts: TrainerParts) -> nn.Module:
    """A second copy of the weights that RL starts from."""
    # Without an adapter of its own, because it is not trained.
    changes = {"name": initial_weights(parts.config), "dtype": dtype_name(parts.policy.dtype), "lora": LoraConfig()}
    return shard(load_policy(parts.config.model.model_copy(update=changes)).module, parts.ranks)


def train_rl(parts: TrainerParts, sampling: Sampling, state: TrainState, monitor: Monitor, before: Metrics) -> None:
    """Train by RL to the last step. `before` are the held-out metrics from before training, logged with step 0."""
    sampling.restore(state.progress.orchestrator_state)

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


def _own_engine(config: InferenceConfig) -> InferenceConfig:
    """The settings of a command that samples in its own process, after a run that may have sampled elsewhere."""
    return InferenceConfig(
        max_slots=config.max_slots, lookup_tokens=config.lookup_tokens, quantization=config.quantization
    )


def report(parts: TrainerParts, stages: Sequence[Stage], duration_s: float) -> None:
    """Show the closing table, write it to summary.json, and write the config that evaluates the weights again."""
    lines = [metrics for _, metrics in read_metrics(parts.output_dir / METRICS)]
    weights = weights_directory(parts.output_dir, parts.config.max_steps)
    seconds = [line["time/step_s"] for line in lines if "time/step_s" in line]
    measured = Prediction(peak_memory_gb(parts.policy.device), median(seconds) if seconds else 0.0)
    summary = RunSummary(
        measure="held-out reward",
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
    write_summary(parts.output_dir / "summary.json", summary)
    show_summary(parts.console, summary)


def _evaluate_command(path: Path, config: RLConfig) -> str:
    """What evaluates the weights again: a command, or a call where an environment is known to a notebook alone."""
    if any(env.id.startswith(f"{NOTEBOOK}:") for env in config.orchestrator.env):
        return f'slimrl.evaluate("{path}")'
    return f"{command_prefix()}slimrl eval @ {path}"


def _write_eval_file(parts: TrainerParts, weights: Path) -> Path:
    """Write a config with which `eval` repeats the final evaluation, to the last digit on the same machine. Returns its
    path."""
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
        inference=_own_engine(config.inference),
        output_dir=str(parts.output_dir / "eval"),
        seed=config.seed,
    )
    path = parts.output_dir / "eval.toml"
    replace_file(path, [config_toml(Resolved(again, {})).encode()])
    return path
