"""The `rl` command's stages in one process: evaluate, warm up, train, evaluate, report. Each can be taken up again."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from slimrl.config.data import ExpertDataConfig
from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.reading.write import config_toml
from slimrl.config.rollout import EvalSamplingConfig
from slimrl.config.run import EvalRunConfig, RLConfig, SFTConfig
from slimrl.environments.base import Offloading, Taskset
from slimrl.inference.engine import Engine
from slimrl.io.files import replace_file
from slimrl.launch.demonstrations import from_experts
from slimrl.launch.held_out import HeldOut
from slimrl.launch.run_dir import METRICS
from slimrl.models.load import Policy, load_policy
from slimrl.monitor.console import RunConsole
from slimrl.monitor.rollouts import RolloutRecord, rollout_file, write_rollouts
from slimrl.monitor.sinks import JsonlSink, Monitor, Sink, read_metrics
from slimrl.monitor.summary import RunSummary, Stage, show_summary, write_summary
from slimrl.orchestrator.orchestrator import Orchestrator
from slimrl.rollout.episode import RolloutContext
from slimrl.trainer.rl.train import train
from slimrl.trainer.sft.train import Conversations
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import TrainState, start, weights_directory
from slimrl.transport.base import Batch
from slimrl.types import Metrics


@dataclass(frozen=True, slots=True)
class Parts:
    """What the stages work with."""

    config: RLConfig
    output_dir: Path
    policy: Policy
    engine: Engine
    context: RolloutContext
    tasksets: Sequence[Taskset]
    held_out: HeldOut
    console: RunConsole


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The supervised stage before RL: its settings, and the demonstrations to learn from."""

    config: SFTConfig
    conversations: Conversations


def warmup_directory(output_dir: Path) -> Path:
    """Where the warm-up of a run keeps its files."""
    return output_dir / "warmup"


def prepare_warm_up(parts: Parts) -> WarmUp:
    """Raises UserError at once, before anything slow, if an environment has no expert."""
    config = parts.config
    sft = SFTConfig(
        max_steps=config.warmup.max_steps,
        seq_len=config.seq_len,
        batch_size=config.warmup.batch_size,
        micro_batch_tokens=config.trainer.micro_batch_tokens,
        val_interval_steps=0,
        output_dir=str(warmup_directory(parts.output_dir)),
        seed=config.seed,
        resume=config.resume,
        data=ExpertDataConfig(env=config.orchestrator.env[0]),
        optim=config.warmup.optim,
        schedule=config.warmup.schedule,
        ckpt=config.ckpt,
    )
    return WarmUp(sft, from_experts(sft, parts.tasksets, parts.context.chat))


def warm_up(parts: Parts, warmup: WarmUp) -> None:
    """Supervised training on the environments' demonstrations; a finished one is only loaded."""
    sft, directory = warmup.config, Path(warmup.config.output_dir)
    state = start(parts.policy, sft.optim, directory, sft.resume)
    first = state.progress.step
    if first < sft.max_steps:
        make_room(parts)
        parts.console.note(f"warm-up: {sft.max_steps} supervised steps on {sft.batch_size} demonstrations each")
        sinks: list[Sink] = [
            JsonlSink(directory / METRICS, first),
            parts.console.steps(sft.max_steps, first, "sft/loss"),
        ]
        with Monitor(sinks) as monitor:
            train_sft(state, sft, warmup.conversations, monitor)
    state.optimizer.release()
    parts.engine.publish(0)


def reference_module(parts: Parts) -> nn.Module:
    """A second copy of the weights that RL begins with."""
    dtype = str(parts.policy.dtype).removeprefix("torch.")
    changes = {"name": starting_name(parts), "dtype": dtype, "lora": LoraConfig()}
    return load_policy(parts.config.model.model_copy(update=changes)).module


def starting_name(parts: Parts) -> str:
    """Which weights RL begins with: those that the warm-up leaves, or the base model's."""
    warmup_steps = parts.config.warmup.max_steps
    warmed = weights_directory(warmup_directory(parts.output_dir), warmup_steps)
    return str(warmed) if warmup_steps else parts.config.model.name


def make_room(parts: Parts) -> None:
    """Have everything that samples and judges let go of its memory: the trainer takes its turn."""
    parts.engine.offload()
    for taskset in parts.tasksets:
        if isinstance(taskset, Offloading):
            taskset.offload()


def make_orchestrator(parts: Parts) -> Orchestrator:
    """Collects the batches of the run, and writes every rollout to `output_dir/rollouts`."""

    def record(step: int, records: Sequence[RolloutRecord]) -> None:
        write_rollouts(rollout_file(parts.output_dir, step), records)

    config = parts.config
    loss = config.trainer.loss.resolve(config.has_teacher)
    return Orchestrator(parts.tasksets, parts.context, config.orchestrator, loss, config.seed, record)


def train_rl(parts: Parts, orchestrator: Orchestrator, state: TrainState, monitor: Monitor, before: Metrics) -> None:
    """The RL stage. `before` are the held-out metrics of its starting point, logged with its first step."""
    orchestrator.position = state.progress.data_position
    orchestrator.role_means = dict(state.progress.role_means)

    def receive(step: int) -> Batch:
        held_out = before if step == 0 else _evaluate_if_due(parts, step)
        prefilled = parts.engine.counters.prefilled
        batch = orchestrator.collect(step)
        make_room(parts)
        batch.metrics.update(held_out)
        batch.metrics["perf/prefill_tokens"] = float(parts.engine.counters.prefilled - prefilled)
        if not batch.samples:
            parts.console.note(f"step {step}: no group carries a signal, so there is nothing to learn from", "yellow")
        return batch

    train(state, parts.config, receive, parts.engine.publish, monitor)


def _evaluate_if_due(parts: Parts, step: int) -> Metrics:
    interval = parts.config.eval.interval_steps
    if not interval or step % interval:
        return {}
    began = time.perf_counter()
    _, metrics = parts.held_out.measure(f"step_{step}", f"after {step} steps")
    return metrics | {"time/eval_s": time.perf_counter() - began}


def report(parts: Parts, stages: Sequence[Stage], duration_s: float) -> None:
    """The closing table, shown and written to summary.json, and the file that evaluates the weights again."""
    lines = [metrics for _, metrics in read_metrics(parts.output_dir / METRICS)]
    weights = weights_directory(parts.output_dir, parts.config.max_steps)
    summary = RunSummary(
        measure="held-out reward",
        stages=tuple(stages),
        duration_s=duration_s,
        tokens_sampled=int(sum(line.get("rollout/tokens_sampled", 0.0) for line in lines)),
        tokens_trained=int(sum(line.get("loss/tokens", 0.0) for line in lines)),
        weights=weights,
        command=f"uv run eval @ {_write_eval_file(parts, weights)}",
    )
    write_summary(parts.output_dir / "summary.json", summary)
    show_summary(parts.console, summary)


def _write_eval_file(parts: Parts, weights: Path) -> Path:
    """A config for the `eval` command that repeats the final evaluation, to the last digit on the same machine."""
    config, episodes = parts.config, parts.config.orchestrator
    dtype = str(parts.policy.dtype).removeprefix("torch.")
    again = EvalRunConfig(
        model=config.model.model_copy(update={"name": str(weights), "dtype": dtype, "lora": LoraConfig()}),
        env=episodes.env,
        num_examples=config.eval.num_examples,
        temperatures=config.eval.temperatures,
        sampling=EvalSamplingConfig(max_tokens=episodes.sampling.max_tokens, stop=episodes.sampling.stop),
        max_turns=episodes.max_turns,
        episode_timeout_s=episodes.episode_timeout_s,
        seq_len=config.seq_len,
        inference=config.inference,
        output_dir=str(parts.output_dir / "eval"),
        seed=config.seed,
    )
    path = parts.output_dir / "eval.toml"
    replace_file(path, [config_toml(Resolved(again, {})).encode()])
    return path
