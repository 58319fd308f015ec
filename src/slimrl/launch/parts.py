"""Makes the parts of a run from its settings: tasksets, policy, engine, held-out evaluation, sinks, monitors.

In one process, the trainer and the engine share one PyTorch module. So sampling and training take turns, and no weights
are copied. A trainer in a separate process has only `TrainerParts`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import nn

from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.rollout import InferenceConfig, LimitsConfig
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.environments.base import CONSTANT
from slimrl.eval.baselines import make_script_policy, script_named
from slimrl.eval.evaluate import make_eval_policy, mode_of
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.io.loop_thread import LoopTasks
from slimrl.io.run_dir import RunDir
from slimrl.launch.held_out import HeldOut, HeldOutPlan, note_drawn
from slimrl.launch.open_dir import initial_weights
from slimrl.launch.tasksets import check_experts, load_tasksets, note_shared_tasks
from slimrl.models.chat.template import ChatFormat
from slimrl.models.device import dtype_name
from slimrl.models.load import Policy, load_policy
from slimrl.models.native.build import why_slow
from slimrl.monitor.console import RunConsole
from slimrl.monitor.health.health import HealthWatch
from slimrl.monitor.metrics import lookup
from slimrl.monitor.sinks import JsonlSink, Monitor, Sink, read_metrics
from slimrl.monitor.wandb_sink import WandbSink
from slimrl.rollout.episode import RolloutContext
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.fsdp import shard
from slimrl.trainer.parallel import ALONE, Ranks
from slimrl.trainer.state import name_best
from slimrl.types import Taskset

AnyTraining = Resolved[RLConfig] | Resolved[SFTConfig] | Resolved[TrainerOnlyConfig]


@dataclass(frozen=True)
class TrainerParts:
    """The objects that every trainer needs. `ranks` are the processes that share the trainer's work."""

    config: RLConfig
    output_dir: Path
    policy: Policy
    console: RunConsole
    ranks: Ranks

    @cached_property
    def reference(self) -> nn.Module:
        """A second copy of the weights with which RL starts, for a teacher and a KL divergence. It is loaded at its
        first use, and has no adapter, because it is not trained."""
        changes = {"name": initial_weights(self.config), "dtype": dtype_name(self.policy.dtype), "lora": LoraConfig()}
        return shard(load_policy(self.config.model.model_copy(update=changes)).module, self.ranks)


@dataclass(frozen=True)
class SamplingParts:
    """The objects that the sampling half of a run needs, in the trainer's process or in another process."""

    config: RLConfig
    output_dir: Path
    console: RunConsole
    context: RolloutContext
    tasksets: Sequence[Taskset]
    held_out: HeldOut


@dataclass(frozen=True, kw_only=True)
class Parts(TrainerParts, SamplingParts):
    """The objects of a run in one process. The stages of `rl` and `probe` share them."""

    engine: Engine
    client: LocalClient


def make_rl_parts(config: RLConfig, output_dir: Path, console: RunConsole) -> Parts:
    """Make the parts of an RL run and load the model. Raises UserError for settings that do not fit the model."""
    tasksets = load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s)
    if config.warmup.max_steps and not (config.resume and read_progress(output_dir)):
        check_experts(tasksets, "rl")  # before the model is loaded, which may take minutes
    policy = open_policy(restore_measured(config.model, output_dir, config.resume), console)
    engine = _make_engine(policy.module, policy.chat, config.inference, config.seq_len)
    # If episodes continue while the trainer trains, the engine runs in `PROCESS_LOOP`, where it can be paused.
    client = LocalClient(engine, policy.chat.text, LoopTasks() if config.async_level else None)
    num_concurrent = concurrent_episodes(config)
    context = RolloutContext(client, policy.chat, config.orchestrator, config.seq_len, num_concurrent)
    return Parts(
        config=config,
        output_dir=output_dir,
        policy=policy,
        console=console,
        ranks=ALONE,
        engine=engine,
        client=client,
        context=context,
        tasksets=tasksets,
        held_out=make_held_out(config, tasksets, context, output_dir, console),
    )


def make_held_out(
    config: RLConfig, tasksets: Sequence[Taskset], context: RolloutContext, output_dir: Path, console: RunConsole
) -> HeldOut:
    """Make the held-out evaluation of an RL run."""
    samplings = [
        config.orchestrator.sampling.params(temperature, config.seed) for temperature in config.eval.temperatures
    ]
    named = dict(zip(config.orchestrator.labels, tasksets, strict=True))
    plan = HeldOutPlan(named, "test", config.eval.num_examples, samplings)
    constant = partial(make_script_policy, script_named(CONSTANT), context)
    held_out = HeldOut(plan, lambda: make_eval_policy(context), output_dir, console, constant)
    note_drawn(held_out.tasks, config.eval.num_examples, console.note)
    note_shared_tasks(tasksets, console.note)
    return held_out


def concurrent_episodes(config: RLConfig) -> int:
    """Return the number of concurrent episodes. At async level 0, this is the number of the engine's slots. Above level
    0 there are more episodes than slots, because many episodes wait for their environment."""
    slots = config.inference.max_slots * config.deployment.num_samplers
    if not config.async_level:
        return slots
    return max(slots, config.orchestrator.batch_size * (config.async_level + 1))


def restore_measured(config: ModelConfig, output_dir: Path, resume: bool) -> ModelConfig:
    """Return the model's settings. If the run is resumed and `dtype`, `num_threads` or `date` is `auto`, replace `auto`
    with the value from the run's first start, because another value would change the results."""
    progress = (read_progress(output_dir) or read_progress(RunDir(output_dir).warmup.path)) if resume else None
    if progress is None:
        return config
    measured = {"dtype": progress.dtype, "num_threads": progress.num_threads, "date": progress.date or "auto"}
    return config.model_copy(update={key: value for key, value in measured.items() if vars(config)[key] == "auto"})


def open_policy(config: ModelConfig, console: RunConsole) -> Policy:
    """Load the model, and log its name, device and dtype."""
    policy = load_policy(config)
    measured = ", ".join(f"{name} {gflops:.0f}" for name, gflops in policy.gflops.items())
    console.note(
        f"{policy.source} on {policy.device}, {torch.get_num_threads()} threads, {dtype_name(policy.dtype)}"
        + (f" (measured GFLOP/s: {measured})" if measured else "")
    )
    if policy.device.type == "cpu" and (reason := why_slow()):
        console.note_once(reason, "yellow")
    if policy.chat.date:
        console.note(f"the chat template writes a date: {policy.chat.date} in every prompt, also after `--resume`")
    elif config.date != "auto":
        console.note(f"`model.date` has no effect: the chat template of {policy.source} writes no date", "yellow")
    return policy


def _make_engine(module: nn.Module, chat: ChatFormat, config: InferenceConfig, seq_len: int) -> Engine:
    return Engine(module, chat.stop_ids, config.max_slots, seq_len)


def make_context(
    module: nn.Module, chat: ChatFormat, config: InferenceConfig, limits: LimitsConfig, seq_len: int
) -> RolloutContext:
    """Return a context for episodes. It has a new engine, which samples from `module` in the calling thread."""
    client = LocalClient(_make_engine(module, chat, config, seq_len), chat.text)
    return RolloutContext(client, chat, limits, seq_len, config.max_slots)


def open_monitor(resolved: AnyTraining, console: RunConsole, first: int, leads: bool = True) -> Monitor:
    """Open the monitor of a run. It has the metrics file, the sink that links the best weights, W&B if the settings
    turn it on, and for `rl` the health monitor unless it is off. `first` is the first step that is logged. Only the
    process that `leads` writes metrics. Raises UserError if an extra is missing."""
    if not leads:
        return Monitor([])
    config, output_dir, name = resolved.config, Path(resolved.config.output_dir), best_metric(resolved.config)
    path = RunDir(output_dir).metrics
    sinks: list[Sink] = [JsonlSink(path, first)]
    sinks += [BestWeights(output_dir, name)] if name else []
    if config.wandb.is_on and os.environ.get("WANDB_MODE") == "disabled":
        console.note("WANDB_MODE=disabled: Weights & Biases is off")
    elif config.wandb.is_on:
        named = {"project": config.wandb.project or "slimrl", "entity": config.wandb.entity, "name": config.wandb.name}
        init: dict[str, object] = {**named, "config": config.model_dump()}
        sinks.append(WandbSink(output_dir, init, first > 0, console.note))
    if not isinstance(config, RLConfig) or not config.monitors.enabled:
        return Monitor(sinks)
    past = [line for line in read_metrics(path) if line[0] < first] if first and path.exists() else []
    alarm = partial(console.note, style="bold red")
    return Monitor(sinks, [HealthWatch(config.monitors, RunDir(output_dir).alarms, past, alarm)])


class BestWeights:
    """A sink that links `weights/best` to the weights with the best held-out metric. The metric of the weights after n
    steps is logged with step n. Metrics of an earlier process of the run count, too."""

    def __init__(self, output_dir: Path, metric: str) -> None:
        self._output_dir, self._metric = output_dir, metric
        self._sign = -1.0 if lookup(metric).better == "lower" else 1.0
        path = RunDir(output_dir).metrics
        past = read_metrics(path) if path.exists() else ()
        self._scores = {step: self._sign * metrics[metric] for step, metrics in past if metric in metrics}

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Choose the best weights again if `metrics` has the held-out metric."""
        if self._metric in metrics:
            self._scores[step] = self._sign * metrics[self._metric]
            name_best(self._output_dir, self._scores)

    def close(self, failed: bool = False) -> None:
        """No-op."""


def best_metric(config: RLConfig | SFTConfig | TrainerOnlyConfig) -> str:
    """Return the name of the metric that determines a command's best weights; empty if there is no such metric."""
    match config:
        case RLConfig():
            return f"held_out/reward_{mode_of(config.eval.temperatures[0])}"
        case SFTConfig():
            return "sft/val_loss"
        case _:
            return ""
