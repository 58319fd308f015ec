"""The supervised stage before RL, on demonstrations by the environments' scripted experts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slimrl.config.data import ExpertDataConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.launch.demonstrations import from_experts
from slimrl.launch.parts import TrainerParts
from slimrl.launch.run_dir import warmup_directory
from slimrl.launch.run_lock import METRICS
from slimrl.launch.sampling import Sampling
from slimrl.models.history import SUPERVISED, read_history
from slimrl.monitor.sinks import JsonlSink, Monitor, Sink
from slimrl.trainer.sft.train import Conversations
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import save_missing_weights, start
from slimrl.types import Taskset

C = TypeVar("C", bound=RLConfig)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The settings of the stage, and the demonstrations to learn from."""

    config: SFTConfig
    conversations: Conversations


def without_needless_warm_up(config: C, note: Callable[[str], None]) -> C:
    """The settings without their warm-up if the model has had one, or other supervised training, in slimrl; `note`
    receives a line about it. `warmup.repeat` keeps it."""
    trained = SUPERVISED in read_history(Path(config.model.name)).trained
    if not config.warmup.max_steps or config.warmup.repeat or not trained:
        return config
    note(f"{config.model.name} has had supervised training, so there is no warm-up; --warmup.repeat makes one")
    return config.model_copy(update={"warmup": config.warmup.model_copy(update={"max_steps": 0})})


def prepare_warm_up(parts: TrainerParts, tasksets: Sequence[Taskset]) -> WarmUp:
    """The warm-up of a run, whose environments have experts (`check_experts`)."""
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
    return WarmUp(sft, from_experts(sft, tasksets, parts.policy.chat))


def warm_up(parts: TrainerParts, warmup: WarmUp, sampling: Sampling) -> None:
    """Train on the demonstrations; a warm-up that has finished before is only loaded and validated."""
    sft, directory = warmup.config, Path(warmup.config.output_dir)
    state = start(parts.policy, sft.optim, directory, sft.resume, ranks=parts.ranks)
    state.history = (*read_history(Path(parts.config.model.name)).trained, SUPERVISED)
    save_missing_weights(state, directory)
    first = state.progress.step
    sampling.make_room()
    done = f", {first} of them done before" if first else ""
    parts.console.note(f"warm-up: {sft.max_steps} supervised steps on {sft.batch_size} demonstrations each{done}")
    kept: list[Sink] = [JsonlSink(directory / METRICS, first)] if parts.ranks.leads else []
    sinks: list[Sink] = [*kept, parts.console.steps(sft.max_steps, first, "sft/loss")]
    with Monitor(sinks) as monitor:
        train_sft(state, sft, warmup.conversations, monitor)
    state.optimizer.detach()  # RL makes an optimizer of its own on the same parameters
