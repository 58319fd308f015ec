"""Every command in one process: on a laptop, and on one GPU. The only code that knows both halves.

The engine samples from the trainer's own module, so the two take turns and publishing weights costs nothing.
"""

import io
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import torch
from torch import nn

from slimrl.config.load import Resolved
from slimrl.config.model import ModelConfig
from slimrl.config.rollout import EnvConfig, InferenceConfig
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig, WandbConfig
from slimrl.environments.base import Taskset, load_taskset
from slimrl.environments.rollout import EpisodeLimits, Player
from slimrl.eval.evaluate import contestant_of
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.launch.demonstrations import load_demonstrations
from slimrl.launch.held_out import HeldOut, HeldOutPlan
from slimrl.launch.pipeline import (
    Parts,
    WarmUp,
    make_orchestrator,
    prepare_warm_up,
    reference_module,
    report,
    train_rl,
    warm_up,
    warmup_directory,
)
from slimrl.launch.ranks import agreed, by_the_first, joined
from slimrl.launch.run_dir import METRICS, open_training_dir
from slimrl.launch.teacher import make_lesson
from slimrl.models.chat import ChatFormat
from slimrl.models.load import Policy, load_policy
from slimrl.models.lora import doubts
from slimrl.monitor.console import RunConsole
from slimrl.monitor.plots import plot_run
from slimrl.monitor.sinks import JsonlSink, Monitor, Sink, WandbSink
from slimrl.monitor.summary import Stage
from slimrl.trainer.checkpoint import read_progress
from slimrl.trainer.fake import FakeBatches
from slimrl.trainer.parallel import Ranks
from slimrl.trainer.rl.train import train
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import start, weights_directory
from slimrl.trainer.terms import terms_of
from slimrl.types import Metrics, SamplingParams


def run_rl(resolved: Resolved[RLConfig], more_sinks: Sequence[Sink] = ()) -> int:
    """The `rl` command: held-out before, warm-up if asked for, RL, held-out after, plots and the closing table."""
    began = time.monotonic()
    config, console = resolved.config, RunConsole()
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        past = read_progress(output_dir) if config.resume else None
        first, earlier_s = (past.step, past.seconds) if past else (0, 0.0)
        sinks = _sinks(resolved, output_dir, config.wandb, console, first)
        with Monitor(sinks) as monitor:
            parts = rl_parts(config, output_dir, console)
            orchestrator = make_orchestrator(parts)
            reference = cache(lambda: reference_module(parts))
            orchestrator.lesson = make_lesson(parts, reference)
            warmup = prepare_warm_up(parts) if config.warmup.max_steps and not past else None
            _note_doubts(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
            if config.warmup.max_steps:
                _note_doubts(config.model, "warmup.optim.lr", config.warmup.optim.lr, console)
            if config.resume:
                console.note(f"resuming at step {first} of {config.max_steps}")
            stages, before = _stages_before_rl(parts, warmup)
            terms = terms_of(config.trainer.loss.choices(), parts.policy.module, reference)
            state = start(parts.policy, config.trainer.optim, output_dir, config.resume, terms)
            state.spend(time.monotonic() - began)  # on evaluations and the warm-up: a resumed run counts these, too
            for sink in (console.steps(config.max_steps, first), *more_sinks):
                monitor.add(sink)
            train_rl(parts, orchestrator, state, monitor, before)
            stage, metrics = parts.held_out.measure("final", "after RL")
            monitor.log(config.max_steps, metrics)
        report(parts, [*stages, stage], time.monotonic() - began + earlier_s)
        console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
    return 0


def run_sft(resolved: Resolved[SFTConfig]) -> int:
    """The `sft` command."""
    config, console = resolved.config, RunConsole()
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        policy = open_policy(_settled(config.model, output_dir, config.resume), console)
        _note_doubts(config.model, "optim.lr", config.optim.lr, console)
        conversations = load_demonstrations(config, policy.chat, console)
        state = start(policy, config.optim, output_dir, config.resume)
        first = state.progress.step
        sinks = _sinks(resolved, output_dir, config.wandb, console, first)
        with Monitor([*sinks, console.steps(config.max_steps, first, "sft/loss")]) as monitor:
            train_sft(state, config, conversations, monitor)
        console.note(f"plots: {', '.join(map(str, plot_run(output_dir)))}")
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0


def run_trainer(resolved: Resolved[TrainerOnlyConfig]) -> int:
    """The `trainer` command: the RL trainer alone, on made-up batches; under torchrun, processes share each of them."""
    with joined(os.environ) as ranks:
        return _train_alone(resolved, ranks, RunConsole() if ranks.leads else RunConsole(io.StringIO()))


def _train_alone(resolved: Resolved[TrainerOnlyConfig], ranks: Ranks, console: RunConsole) -> int:
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    opened = open_training_dir(resolved, output_dir, config.resume, console.note)
    with ExitStack() as held:
        by_the_first(ranks, lambda: held.enter_context(opened))
        model = agreed(_settled(config.model, output_dir, config.resume), ranks)
        policy = open_policy(model, console)
        _note_doubts(config.model, "trainer.optim.lr", config.trainer.optim.lr, console)
        terms = terms_of(config.trainer.loss.choices(), policy.module, lambda: load_policy(model).module)
        state = start(policy, config.trainer.optim, output_dir, config.resume, terms, ranks)
        first = state.progress.step
        batches = FakeBatches(config.data, len(policy.tokenizer), config.seed)
        sinks = _sinks(resolved, output_dir, config.wandb, console, first) if ranks.leads else []
        with Monitor([*sinks, console.steps(config.max_steps, first, "loss/policy")]) as monitor:
            train(state, config, batches.receive, lambda version: None, monitor)
        console.note(f"weights: {weights_directory(output_dir, config.max_steps)}")
    return 0


def _stages_before_rl(parts: Parts, warmup: WarmUp | None) -> tuple[list[Stage], Metrics]:
    """Held-out evaluation of the base model, the warm-up if it is still to do, and what it led to; or what is on record
    of them."""
    stages: list[Stage] = []
    if parts.config.warmup.max_steps:
        stages.append((parts.held_out.recall("base") or parts.held_out.measure("base", "base model"))[0])
    if warmup is not None:
        warm_up(parts, warmup)
    name = "after warm-up" if stages else "before RL"
    stage, metrics = parts.held_out.recall("start") or parts.held_out.measure("start", name)
    return [*stages, stage], metrics


def rl_parts(config: RLConfig, output_dir: Path, console: RunConsole) -> Parts:
    tasksets = tasksets_of(config.orchestrator.env)
    policy = open_policy(_settled(config.model, output_dir, config.resume), console)
    rollout = config.orchestrator
    limits = EpisodeLimits(rollout.max_turns, config.seq_len, rollout.episode_timeout_s)
    engine, player = player_of(policy.module, policy.chat, config.inference, limits)
    settings = rollout.sampling
    samplings = [
        SamplingParams(settings.max_tokens, temperature, stop=tuple(settings.stop), seed=config.seed)
        for temperature in config.eval.temperatures
    ]
    plan = HeldOutPlan(tasksets, "test", config.eval.num_examples, samplings)
    held_out = HeldOut(plan, lambda: contestant_of(player), output_dir, console)
    return Parts(config, output_dir, policy, engine, player, tasksets, held_out, console)


def tasksets_of(envs: Sequence[EnvConfig]) -> list[Taskset]:
    return [load_taskset(env.id, env.args) for env in envs]


def _settled(config: ModelConfig, output_dir: Path, resume: bool) -> ModelConfig:
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


def _note_doubts(model: ModelConfig, key: str, lr: float, console: RunConsole) -> None:
    for doubt in doubts(model.lora, key, lr):
        console.note(doubt, "yellow")


def player_of(
    module: nn.Module, chat: ChatFormat, config: InferenceConfig, limits: EpisodeLimits
) -> tuple[Engine, Player]:
    engine = Engine(module, chat.stop_ids, config.max_slots, limits.seq_len, config.lookup_tokens, config.quantization)
    return engine, Player(LocalClient(engine, chat.text), chat, limits, config.max_slots)


def _sinks(
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
