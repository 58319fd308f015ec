"""What a training step will work on: rollouts like those that are expected, as the samples that the trainer packs.

Their lengths are not known before a run. In this order they come from the rollouts that an earlier run has left in the
same directory, from the episodes of the environment's scripted expert, or from an assumption, which `source` states.
"""

import asyncio
import itertools
import random
import re
import statistics
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.base import Taskset
from slimrl.environments.find import call_user_code, tasks_of
from slimrl.environments.scripts import EXPERT, demonstrate, find_scripts
from slimrl.errors import UserError
from slimrl.io.loop_thread import LoopThread
from slimrl.models.chat.template import ChatFormat
from slimrl.monitor.rollouts import read_rollouts
from slimrl.trainer.fake import STALE
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Message, Sample, Task

MOST_TOKENS = 200_000  # of the samples that stand for a batch; a larger one is counted in multiples of them
EXPERT_TASKS = 16
EXPERT_S = 3.0  # for which experts may play
UNENDING = 8  # one in so many rollouts talks up to the limit: experts end their turns, models at first do not
WORDS = re.compile(r"\s?[^\W\d_]{1,6}|\d|\s*[^\w\s]|\s+|_")  # about a token of usual tokenizers each
VOCABULARY = 1 << 20

Tokens = tuple[list[int], list[bool]]


@dataclass(frozen=True, slots=True)
class Rows:
    """The packs of a step: how many, the tokens and trained tokens of the largest, and those of all together."""

    num: int
    largest: int
    largest_trained: int
    tokens: int
    trained: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Rollouts that stand for those of a step, which has `multiple` times as many, and where they come from.

    `env_s` is how long an episode's environment takes; the first `distinct` samples are of different tasks.
    """

    samples: tuple[Sample, ...]
    multiple: float
    source: str
    env_s: float = 0.0
    distinct: int = 1

    @property
    def num(self) -> float:
        """The rollouts of a step."""
        return self.multiple * len(self.samples)

    @property
    def mean_length(self) -> float:
        """The tokens of a rollout."""
        return sum(len(sample.token_ids_T) for sample in self.samples) / len(self.samples)

    @property
    def replies(self) -> list[list[int]]:
        """The lengths of each rollout's replies."""
        return [reply_lengths(sample) for sample in self.samples]

    @property
    def sampled(self) -> float:
        """The tokens that a step samples."""
        return self.multiple * sum(map(sum, self.replies))

    @property
    def tokens(self) -> float:
        """The tokens of a step's row, if it were one."""
        (row,) = pack_samples(self.samples, 1 << 60, torch.device("cpu"))
        return self.multiple * len(row.token_ids_T)

    @property
    def prefilled(self) -> float:
        """The tokens of prompts and observations that the engine computes in a step: of what rollouts begin with in
        common, each once."""
        return max(0.0, self.tokens - self.sampled)

    def distinct_tokens(self, num: int) -> float:
        """The tokens of a row of so many rollouts of different tasks."""
        (row,) = pack_samples(self.samples[: self.distinct], 1 << 60, torch.device("cpu"))
        return num * len(row.token_ids_T) / self.distinct

    def rows(self, micro_batch_tokens: int) -> Rows:
        """The packs of a step."""
        return rows_of(pack_samples(self.samples, micro_batch_tokens, torch.device("cpu")), self.multiple)


def rows_of(packs: Sequence[Pack], multiple: float = 1.0) -> Rows:
    """The numbers of packs, each of which stands for `multiple` ones."""
    largest = max(packs, key=lambda pack: len(pack.token_ids_T))
    return Rows(
        num=max(len(packs), round(multiple * len(packs))),
        largest=len(largest.token_ids_T),
        largest_trained=max(len(pack.source_N) for pack in packs),
        tokens=round(multiple * sum(len(pack.token_ids_T) for pack in packs)),
        trained=round(multiple * sum(len(pack.source_N) for pack in packs)),
    )


def worst_rows(config: RLConfig | SFTConfig) -> Rows:
    """The packs of a step in which every conversation fills `seq_len` and none shares anything."""
    batch = config.orchestrator.batch_size if isinstance(config, RLConfig) else config.batch_size
    micro = config.trainer.micro_batch_tokens if isinstance(config, RLConfig) else config.micro_batch_tokens
    tokens, largest = batch * config.seq_len, max(micro, config.seq_len)
    return Rows(-(-tokens // largest), min(tokens, largest), min(tokens, largest), tokens, tokens)


def reply_lengths(sample: Sample) -> list[int]:
    """The numbers of trained tokens that stand together."""
    return [len([*run]) for trained, run in itertools.groupby(sample.loss_mask_T) if trained]


def sample_of(token_ids: Sequence[int], mask: Sequence[bool], advantage: float = 1.0) -> Sample:
    """A sample whose log-probabilities no guard compares."""
    num = len(token_ids)
    return Sample(tuple(token_ids), tuple(mask), (-10.0,) * num, (advantage,) * num, version=STALE)


def from_earlier_run(output_dir: Path, batch_size: int) -> Workload | None:
    """The rollouts of the last step that a run in this directory has recorded; None if there are none."""
    files = sorted((output_dir / "rollouts").glob("step_*.jsonl"))
    for path in reversed(files):
        try:
            rollouts = [record.rollout for record in read_rollouts(path)]
        except (UserError, LookupError, ValueError, TypeError):
            continue
        whole = [one for one in rollouts if not one.failure and any(one.loss_mask_T) and not one.loss_mask_T[0]]
        if whole:
            samples = _few(sample_of(one.token_ids_T, one.loss_mask_T) for one in whole)
            return Workload(samples, batch_size / len(samples), f"lengths of {path}")
    return None


def from_experts(config: RLConfig | SFTConfig, tasksets: Sequence[Taskset], chat: ChatFormat | None) -> Workload | None:
    """Rollouts as the tasksets' experts play, with one in eight that talks up to `max_tokens`; None if a taskset has no
    expert. Without a chat format tokens are guessed from the text."""
    if not tasksets or not all(EXPERT in find_scripts(taskset) for taskset in tasksets):
        return None
    batch, group = _sizes(config)
    began, played, seconds = time.monotonic(), list[Tokens](), list[float]()
    queues = [iter(tasks_of(taskset, "train")) for taskset in tasksets]
    num = min(max(1, batch // group), EXPERT_TASKS)
    for number in range(num):
        taskset, queue = tasksets[number % len(tasksets)], queues[number % len(tasksets)]
        if (task := next(queue, None)) is None or (played and time.monotonic() - began > EXPERT_S):
            break
        messages = demonstrate(taskset, task)
        played.append(_encode(messages, chat))
        seconds.append(_replay_s(taskset, task, messages))
    if not played:
        return None
    limit = config.orchestrator.sampling.max_tokens if isinstance(config, RLConfig) else 0
    samples = _few(_groups(played, min(group, batch), limit, config.seq_len))
    how = "" if chat else ", with tokens guessed from the text"
    source = f"lengths of the expert's episodes{how}"
    distinct = min(len(played), len(samples))
    return Workload(samples, batch / len(samples), source, statistics.median(seconds), distinct)


def _replay_s(taskset: Taskset, task: Task, messages: Sequence[Message]) -> float:
    """The seconds that the environment takes for an episode with the replies of a conversation; 0 if it breaks off."""

    async def play() -> None:
        episode = taskset.environment(task)
        await episode.start()
        for reply in (message["content"] for message in messages if message["role"] == "assistant"):
            if (await episode.step(reply)).done:
                return

    began = time.monotonic()
    try:
        call_user_code("the episode", lambda: LoopThread("plan").wait(asyncio.wait_for(play(), EXPERT_S)))
    except UserError:
        return 0.0
    return time.monotonic() - began


def from_assumption(config: RLConfig | SFTConfig) -> Workload:
    """Rollouts whose prompt takes a quarter of `seq_len`, at most 256 tokens, each reply half of `max_tokens`, and each
    message of the environment as much. Conversations of `sft` are half of `seq_len` long."""
    batch, group = _sizes(config)
    rng = random.Random(0)

    def some(num: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(num)]

    if isinstance(config, SFTConfig):
        half = max(1, config.seq_len // 4)
        conversation = [False] * half + [True] * half
        samples = _few(sample_of(some(2 * half), conversation) for _ in range(batch))
        return Workload(samples, batch / len(samples), "assumed: conversations of half of seq_len, half of it replies")
    episodes = config.orchestrator
    reply = max(1, episodes.sampling.max_tokens // 2)
    prompt = max(1, min(256, config.seq_len // 4))
    turns = max(1, min(episodes.max_turns, (config.seq_len - prompt) // (2 * reply)))
    mask = [False] * prompt + ([True] * reply + [False] * reply) * (turns - 1) + [True] * reply
    played = [(some(len(mask)), mask) for _ in range(min(max(1, batch // group), EXPERT_TASKS))]
    samples = _few(_groups(played, min(group, batch), 0, config.seq_len))
    said = f"assumed: a prompt of {prompt} tokens, {turns} replies of {reply}"
    return Workload(samples, batch / len(samples), said)


def _sizes(config: RLConfig | SFTConfig) -> tuple[int, int]:
    """The rollouts of a step and of a group."""
    if isinstance(config, RLConfig):
        return config.orchestrator.batch_size, config.orchestrator.rollouts_per_example
    return config.batch_size, 1


def _encode(messages: list[Message], chat: ChatFormat | None) -> Tokens:
    if chat is not None:
        return chat.encode_conversation(messages)
    token_ids, mask = list[int](), list[bool]()
    for message in messages:
        words = [message["role"], "\n", *WORDS.findall(message["content"]), "<end>", "\n"]
        token_ids += [zlib.crc32(word.encode()) % VOCABULARY for word in words]
        replied = message["role"] == "assistant"
        mask += [False, False] + [replied] * (len(words) - 3) + [False]
    while mask and not mask[-1]:  # nothing is behind the last reply
        mask.pop(), token_ids.pop()
    return token_ids, mask


def _groups(played: Sequence[Tokens], group: int, limit: int, seq_len: int) -> Iterator[Sample]:
    """Groups of rollouts that have in common what comes before the first reply, and nothing behind that."""
    rng = random.Random(0)
    for number, (token_ids, mask) in itertools.product(range(group), played):
        tokens, trained = list(token_ids), list(mask)
        if number:
            first = trained.index(True)
            tokens[first:] = [rng.randrange(VOCABULARY) for _ in tokens[first:]]
        if limit and number % UNENDING == UNENDING - 1:
            last = reply_lengths(sample_of(tokens, trained))[-1]
            more = max(0, limit - last)
            tokens, trained = tokens + [rng.randrange(VOCABULARY) for _ in range(more)], trained + [True] * more
        tokens, trained = tokens[:seq_len], trained[:seq_len]
        if any(trained):
            yield sample_of(tokens, trained, 1.0 if number % 2 else -1.0)


def _few(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """The first samples, of at most 200,000 tokens together."""
    kept, num = list[Sample](), 0
    for sample in samples:
        num += len(sample.token_ids_T)
        if kept and num > MOST_TOKENS:
            break
        kept.append(sample)
    return tuple(kept)
