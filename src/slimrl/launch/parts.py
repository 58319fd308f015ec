"""Every command in one process: on a laptop, and on one GPU. The only code that knows both halves.

The engine samples from the trainer's own module, so the two take turns and publishing weights costs nothing.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.rollout import EnvConfig, EpisodesConfig, InferenceConfig
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig, WandbConfig
from slimrl.environments.base import Taskset
from slimrl.environments.find import load_taskset
from slimrl.eval.evaluate import make_eval_policy
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.launch.held_out import HeldOut, HeldOutPlan
from slimrl.launch.run_dir import METRICS
from slimrl.launch.stages import (
    Parts,
    warmup_directory,
)
from slimrl.models.chat.template import ChatFormat
from slimrl.models.load import Policy, load_policy
from slimrl.models.lora import config_warnings
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import JsonlSink, Sink, WandbSink
from slimrl.rollout.episode import EpisodeLimits, RolloutContext
from slimrl.trainer.checkpoint import read_progress


def rl_parts(config: RLConfig, output_dir: Path, console: RunConsole) -> Parts:
    tasksets = tasksets_of(config.orchestrator.env)
    policy = open_policy(settle_model(config.model, output_dir, config.resume), console)
    limits = episode_limits(config.orchestrator, config.seq_len)
    engine, context = make_context(policy.module, policy.chat, config.inference, limits)
    samplings = [
        config.orchestrator.sampling.params(temperature, config.seed) for temperature in config.eval.temperatures
    ]
    plan = HeldOutPlan(tasksets, "test", config.eval.num_examples, samplings)
    held_out = HeldOut(plan, lambda: make_eval_policy(context), output_dir, console)
    return Parts(config, output_dir, policy, engine, context, tasksets, held_out, console)


def tasksets_of(envs: Sequence[EnvConfig]) -> list[Taskset]:
    return [load_taskset(env.id, env.args) for env in envs]


def episode_limits(config: EpisodesConfig, seq_len: int) -> EpisodeLimits:
    """When an episode ends: after so many turns, tokens, or seconds of waiting."""
    return EpisodeLimits(config.max_turns, seq_len, config.episode_timeout_s)


def settle_model(config: ModelConfig, output_dir: Path, resume: bool) -> ModelConfig:
    """A resumed run keeps what was measured at its start, the dtype and the number of threads: else its numbers would
    not be the same to the last bit."""
    progress = (read_progress(output_dir) or read_progress(warmup_directory(output_dir))) if resume else None
    if progress is None:
        return config
    measured = {"dtype": progress.dtype, "num_threads": progress.num_threads}
    return config.model_copy(update={key: value for key, value in measured.items() if vars(config)[key] == "auto"})


def open_policy(config: ModelConfig, console: RunConsole) -> Policy:
    policy = load_policy(config)
    dtype = str(policy.dtype).removeprefix("torch.")
    measured = ", ".join(f"{name} {gflops:.0f}" for name, gflops in policy.gflops.items())
    console.note(
        f"{policy.source} on {policy.device}, {torch.get_num_threads()} threads, {dtype}"
        + (f" (measured GFLOP/s: {measured})" if measured else "")
    )
    return policy


def note_config_warnings(model: ModelConfig, key: str, lr: float, console: RunConsole) -> None:
    for doubt in config_warnings(model.lora, key, lr):
        console.note(doubt, "yellow")


def make_context(
    module: nn.Module, chat: ChatFormat, config: InferenceConfig, limits: EpisodeLimits
) -> tuple[Engine, RolloutContext]:
    engine = Engine(module, chat.stop_ids, config.max_slots, limits.seq_len, config.lookup_tokens, config.quantization)
    return engine, RolloutContext(LocalClient(engine, chat.text), chat, limits, config.max_slots)


def open_sinks(
    resolved: Resolved[RLConfig] | Resolved[SFTConfig] | Resolved[TrainerOnlyConfig],
    output_dir: Path,
    wandb: WandbConfig,
    console: RunConsole,
    first: int,
) -> list[Sink]:
    sinks: list[Sink] = [JsonlSink(output_dir / METRICS, first)]
    if wandb.enabled:
        init = {"project": wandb.project, "entity": wandb.entity, "name": wandb.name}
        sinks.append(
            WandbSink(output_dir, {**init, "config": resolved.config.model_dump()}, console.note, resume=first > 0)
        )
    return sinks
