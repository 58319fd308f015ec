"""Supervised training, as a command or as the warm-up stage of `rl`. Makes samples from the demonstrations of scripted
experts or from conversations in a file, and runs the warm-up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slimrl.config.data import ExpertDataConfig, FileDataConfig, HubDataConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.find import tasks_of
from slimrl.environments.scripts import demonstrate
from slimrl.errors import UserError
from slimrl.io.rows import draw
from slimrl.io.run_dir import RunDir
from slimrl.launch.parts import TrainerParts
from slimrl.launch.sampling import Sampling
from slimrl.launch.tasksets import TIMEOUT_S, check_experts, load_tasksets, note_shared_tasks
from slimrl.models.chat.template import ChatFormat
from slimrl.models.history import SUPERVISED, read_history
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import JsonlSink, Monitor, Sink
from slimrl.orchestrator.curriculum import Curriculum, Shuffle
from slimrl.trainer.checkpoint import Progress
from slimrl.trainer.sft.data import load_conversations
from slimrl.trainer.sft.rows import Conversation
from slimrl.trainer.sft.train import Conversations
from slimrl.trainer.sft.train import train as train_sft
from slimrl.trainer.state import start
from slimrl.types import Sample, Task, Taskset

C = TypeVar("C", bound=RLConfig)


def load_experts(config: SFTConfig, console: RunConsole) -> list[Taskset]:
    """Return the tasksets in the section `data`, or an empty list if the section names a file or a data set. Raises
    UserError if a taskset has no expert."""
    if not isinstance(config.data, ExpertDataConfig):
        return []
    tasksets = load_tasksets([config.data.env], TIMEOUT_S)
    note_shared_tasks(tasksets, console.note)
    check_experts(tasksets, "sft")
    return tasksets


def load_demonstrations(
    config: SFTConfig, experts: Sequence[Taskset], chat: ChatFormat, console: RunConsole
) -> Conversations:
    """Return the training and validation samples of the section `data`. `experts` is the result of `load_experts`."""
    if isinstance(config.data, ExpertDataConfig):
        return from_experts(config, experts, chat)
    return _from_data(config, config.data, chat, console)


def from_experts(config: SFTConfig, tasksets: Sequence[Taskset], chat: ChatFormat) -> Conversations:
    """Return samples of demonstrations by the tasksets' experts. The tasksets take turns. Validation uses held-out
    tasks.

    Raises UserError if a taskset has no expert, or if a demonstration is longer than `seq_len`.
    """
    curriculum = order_of_demonstrations(tasksets, config.seed)

    def sample_of(taskset: Taskset, task: Task) -> Sample:
        conversation = demonstrate(taskset, task)
        sample = _sample(*chat.encode_conversation(conversation))
        if len(sample.token_ids_T) > config.seq_len:
            raise UserError(
                f"the demonstration of {task.id} has {len(sample.token_ids_T)} tokens; raise `seq_len` above that."
            )
        return sample

    def of_step(step: int) -> list[Sample]:
        draws = [curriculum.draw(step * config.batch_size + n) for n in range(config.batch_size)]
        return [sample_of(draw.taskset, draw.task) for draw in draws]

    each = -(-config.val_num_examples // len(tasksets))  # rounded up
    validation = [
        sample_of(taskset, task)
        for taskset in tasksets
        for task in draw(tasks_of(taskset, "test"), each, lambda task: task.id)
    ]
    if not validation:
        raise UserError("the environments have no held-out tasks to validate on; check their `args`.")
    return Conversations(of_step, validation)


def order_of_demonstrations(tasksets: Sequence[Taskset], seed: int) -> Curriculum:
    """Return the order of the demonstrated tasks over all steps."""
    return Curriculum(tasksets, f"sft/{seed}")


def _from_data(
    config: SFTConfig, data: FileDataConfig | HubDataConfig, chat: ChatFormat, console: RunConsole
) -> Conversations:
    """Return the samples of a file or data set. Conversations that are too long are left out before the first step.

    A row is tokenised each time that it is used, because the tokens of a large data set would not fit into memory.
    """
    splits = load_conversations(data, console.note)
    named = {m["role"] for split in splits for read in split for m in read.messages if m.get("name")}
    for role in sorted(named):
        if not chat.writes_name(role):
            console.note(
                f"the chat template does not write the `name` of a message of the {role}: nothing is learnt from it"
            )

    def sample_of(read: Conversation) -> Sample:
        return _sample(*encode_row(read, chat))

    def fits(read: Conversation) -> bool:
        bar.advance()
        return len(sample_of(read).token_ids_T) <= config.seq_len

    total = sum(map(len, splits))
    with console.progress("counting tokens of the conversations", total) as bar:
        train, validation = ([*filter(fits, split)] for split in splits)
    if left_out := total - len(train) - len(validation):
        console.note(f"left out {left_out} conversations that are longer than seq_len = {config.seq_len} tokens")
    if not train or not validation:
        raise UserError(f"too few conversations fit `seq_len` = {config.seq_len} tokens; raise it.")
    shuffle = Shuffle(len(train), f"sft/{config.seed}")

    def of_step(step: int) -> list[Sample]:
        places = [shuffle.at(step * config.batch_size + n) for n in range(config.batch_size)]
        return [sample_of(train[place]) for place in places]

    # Draw by the row's index, so that equal rows are drawn independently and the file's path has no influence.
    chosen = draw(validation, config.val_num_examples, lambda read: read.where.rpartition(":")[2])
    return Conversations(of_step, [sample_of(read) for read in chosen])


def encode_row(read: Conversation, chat: ChatFormat) -> tuple[list[int], list[bool]]:
    """Return the token ids of a row and the mask of trained tokens. Raises UserError, prefixed with the row's place, if
    the chat format cannot render the row."""
    try:
        return chat.encode_conversation(read.messages)
    except UserError as error:
        raise UserError(f"{read.where}: {error}") from error


def _sample(token_ids: Sequence[int], mask: Sequence[bool]) -> Sample:
    """Make the sample of a row. The tokens in the mask are trained with advantage 1."""
    num = len(token_ids)
    return Sample(tuple(token_ids), tuple(mask), (0.0,) * num, (1.0,) * num, version=0)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The settings and demonstrations of the warm-up stage."""

    config: SFTConfig
    conversations: Conversations


def without_needless_warm_up(config: C, note: Callable[[str], None]) -> C:
    """Remove the warm-up from the settings, and log this, if slimrl has already trained the model with supervision."""
    if not config.warmup.max_steps or SUPERVISED not in read_history(Path(config.model.name)).trained:
        return config
    note(f"{config.model.name} has had supervised training, so there is no warm-up")
    return config.model_copy(update={"warmup": config.warmup.model_copy(update={"max_steps": 0})})


def prepare_warm_up(parts: TrainerParts, past: Progress | None, tasksets: Sequence[Taskset] = ()) -> WarmUp | None:
    """Return the warm-up of a run; None if the settings have none, or if RL has begun (`past`). Without `tasksets`,
    loads them. Raises UserError if one has no expert."""
    config = parts.config
    if not config.warmup.max_steps or past:
        return None
    tasksets = tasksets or load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s)
    check_experts(tasksets, "rl")
    sft = SFTConfig(
        max_steps=config.warmup.max_steps,
        seq_len=config.seq_len,
        batch_size=config.warmup.batch_size,
        micro_batch_tokens=config.trainer.micro_batch_tokens,
        val_interval_steps=0,
        output_dir=str(RunDir(parts.output_dir).warmup.path),
        seed=config.seed,
        resume=config.resume,
        data=ExpertDataConfig(env=config.orchestrator.env[0]),
        optim=config.warmup.optim,
        schedule=config.warmup.schedule,
        ckpt=config.ckpt,
    )
    return WarmUp(sft, from_experts(sft, tasksets, parts.policy.chat))


def warm_up(parts: TrainerParts, warmup: WarmUp, sampling: Sampling) -> None:
    """Train on the demonstrations. If the warm-up is already finished, only load and validate its weights."""
    sft, directory = warmup.config, Path(warmup.config.output_dir)
    state = start(parts.policy, sft.optim, directory, sft.resume, ranks=parts.ranks)
    state.history = (*read_history(Path(parts.config.model.name)).trained, SUPERVISED)
    first = state.progress.step
    sampling.make_room()
    done = f", {first} of them done before" if first else ""
    parts.console.note(f"warm-up: {sft.max_steps} supervised steps on {sft.batch_size} demonstrations each{done}")
    kept: list[Sink] = [JsonlSink(RunDir(directory).metrics, first)] if parts.ranks.leads else []
    sinks: list[Sink] = [*kept, parts.console.steps(sft.max_steps, first, "sft/loss")]
    with Monitor(sinks) as monitor:
        train_sft(state, sft, warmup.conversations, monitor)
    state.optimizer.detach()  # RL makes its own optimizer on the same parameters
