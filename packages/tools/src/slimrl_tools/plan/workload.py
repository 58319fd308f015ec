"""What a training step will work on: rollouts like those that are expected, as the samples that the trainer packs.

Their lengths are not known before a run. In this order they come from the rollouts that an earlier run has left in the
same directory, from a recorded run of the same recipe (`plan/outlines.py`), from the episodes of the environment's
scripted expert (`plan/experts.py`), or from an assumption, which `source` states.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.find import has_one_turn
from slimrl.errors import UserError
from slimrl.monitor.rollouts import read_rollouts, rollout_file, step_files
from slimrl.trainer.fake import STALE
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Rollout, Sample

MOST_TOKENS = 200_000  # of the samples that stand for a batch; a larger one is counted in multiples of them
MOST_TASKS = 16  # that stand for those of a batch
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
class Row:
    """What a row of samples costs: its tokens, the trained ones, and the pairs of a token and one that it sees."""

    tokens: float
    trained: float
    pairs: float

    def times(self, factor: float) -> "Row":
        """So many rows like it."""
        return Row(factor * self.tokens, factor * self.trained, factor * self.pairs)

    def __add__(self, other: "Row") -> "Row":
        return Row(self.tokens + other.tokens, self.trained + other.trained, self.pairs + other.pairs)


@dataclass(frozen=True, slots=True)
class Workload:
    """Rollouts that stand for those of a step, which has `multiple` times as many, and where they come from.

    `env_s` is how long an episode's environment takes. `useless` is the share of rollouts in whose groups nothing is to
    be learned: others are sampled in their place.
    """

    samples: tuple[Sample, ...]
    multiple: float
    source: str
    env_s: float = 0.0
    useless: float = 0.0

    @property
    def num(self) -> float:
        """The rollouts that a step trains on."""
        return self.multiple * len(self.samples)

    def waves(self, group: int, resample_factor: int) -> list[float]:
        """The rollouts that are sampled at first, then in place of useless groups of these, and so on, up to
        `resample_factor` times the first."""
        sizes, bound = [self.num], resample_factor * self.num
        while (groups := round(self.num / group * self.useless ** len(sizes))) >= 1 and sum(sizes) < bound:
            sizes.append(min(float(groups * group), bound - sum(sizes)))
        return sizes

    @property
    def mean_length(self) -> float:
        """The tokens of a rollout."""
        return sum(len(sample.token_ids_T) for sample in self.samples) / len(self.samples)

    @property
    def replies(self) -> list[list[int]]:
        """The lengths of each rollout's replies."""
        return [reply_lengths(sample) for sample in self.samples]

    @property
    def num_sampled(self) -> float:
        """The sampled tokens that a step trains on."""
        return self.multiple * sum(map(sum, self.replies))

    @property
    def row(self) -> Row:
        """The row of a step, if it were one."""
        return row_of(self.samples).times(self.multiple)

    @property
    def num_prefilled(self) -> float:
        """The tokens of prompts and observations that the engine computes for the rollouts that are trained on: of what
        rollouts begin with in common, each once."""
        return max(0.0, self.row.tokens - self.num_sampled)

    def distinct_row(self, num: int) -> Row:
        """The row of so many rollouts of different tasks."""
        prompts = {sample.token_ids_T[: sample.loss_mask_T.index(True)]: sample for sample in reversed(self.samples)}
        return row_of(list(prompts.values())).times(num / len(prompts))

    def rows(self, micro_batch_tokens: int) -> Rows:
        """The packs of a step."""
        return rows_of(pack_samples(self.samples, micro_batch_tokens, torch.device("cpu")), self.multiple)


def row_of(samples: Sequence[Sample]) -> Row:
    """The row of samples, in which what several begin with in common stands once."""
    (pack,) = pack_samples(samples, 1 << 60, torch.device("cpu"))
    return Row(len(pack.token_ids_T), len(pack.source_N), float((pack.positions_T + 1).sum()))


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
    for path in reversed([rollout_file(output_dir, step) for step in step_files(output_dir)]):
        try:
            records = read_rollouts(path)
        except (UserError, LookupError, ValueError, TypeError):
            continue
        found = [(sample, one.has_signal) for one in records if (sample := rollout_sample(one.rollout))]
        trained = few(sample for sample, has_signal in found if has_signal)
        if trained:
            useless = 1 - sum(has_signal for _, has_signal in found) / len(found)
            return Workload(trained, batch_size / len(trained), f"lengths of {path}", useless=useless)
    return None


def rollout_sample(rollout: Rollout) -> Sample | None:
    """The sample of a rollout that was recorded; None of one that failed or that the policy begins."""
    if rollout.failure or not any(rollout.loss_mask_T) or rollout.loss_mask_T[0]:
        return None
    return sample_of(rollout.token_ids_T, rollout.loss_mask_T)


def from_assumption(config: RLConfig | SFTConfig) -> Workload:
    """Rollouts whose prompt takes a quarter of `seq_len`, at most 256 tokens, each of up to `max_turns` replies half of
    `max_tokens`, and each message of the environment as much. Conversations of `sft` are half of `seq_len` long."""
    batch, group = sizes_of(config)
    rng = random.Random(0)

    def some(num: int) -> list[int]:
        return [rng.randrange(VOCABULARY) for _ in range(num)]

    if isinstance(config, SFTConfig):
        half = max(1, config.seq_len // 4)
        conversation = [False] * half + [True] * half
        samples = few(sample_of(some(2 * half), conversation) for _ in range(batch))
        return Workload(samples, batch / len(samples), "assumed: conversations of half of seq_len, half of it replies")
    episodes = config.orchestrator
    reply = max(1, episodes.sampling.max_tokens // 2)
    prompt = max(1, min(256, config.seq_len // 4))
    most = 1 if all(has_one_turn(env.id, env.args) for env in episodes.env) else episodes.max_turns
    turns = max(1, min(most, (config.seq_len - prompt) // (2 * reply)))
    mask = [False] * prompt + ([True] * reply + [False] * reply) * (turns - 1) + [True] * reply
    played = [(some(len(mask)), mask) for _ in range(min(max(1, batch // group), MOST_TASKS))]
    samples = few(in_groups([[one] for one in played], min(group, batch), config.seq_len))
    said = f"assumed: a prompt of {prompt} tokens, {turns} replies of {reply}"
    return Workload(samples, batch / len(samples), said)


def sizes_of(config: RLConfig | SFTConfig) -> tuple[int, int]:
    """The rollouts of a step and of a group."""
    if isinstance(config, RLConfig):
        return config.orchestrator.batch_size, config.orchestrator.rollouts_per_example
    return config.batch_size, 1


def in_groups(played: Sequence[Sequence[Tokens]], group: int, seq_len: int) -> Iterator[Sample]:
    """Groups of rollouts of the same task, which are played in the ways that `played` has for it, in turn. They have in
    common what comes before the first reply, and nothing behind that."""
    rng = random.Random(0)
    for number, (place, ways) in itertools.product(range(group), enumerate(played)):
        token_ids, mask = ways[(number + place) % len(ways)]
        if number:
            first = mask.index(True)
            token_ids = token_ids[:first] + [rng.randrange(VOCABULARY) for _ in token_ids[first:]]
        if any(mask[:seq_len]):
            yield sample_of(token_ids[:seq_len], mask[:seq_len], 1.0 if number % 2 else -1.0)


def few(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """The first samples, of at most 200,000 tokens together."""
    kept, num = list[Sample](), 0
    for sample in samples:
        num += len(sample.token_ids_T)
        if kept and num > MOST_TOKENS:
            break
        kept.append(sample)
    return tuple(kept)
