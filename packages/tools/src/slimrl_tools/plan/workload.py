"""Predicts the work of a training step: expected rollouts, as the samples that the trainer packs.

Their lengths are unknown before a run. They are taken from the first source available: the rollouts of an earlier run
in the same directory, a recorded run of the same recipe (`plan/outlines.py`), episodes of the environment's scripted
expert (`plan/experts.py`), or an assumption. `source` names it.
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
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import read_rollouts
from slimrl.trainer.fake import STALE
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Rollout, Sample

MOST_TOKENS = 200_000  # in the samples that represent a batch; a larger batch is a multiple of them
MOST_TASKS = 16  # tasks that represent a batch
VOCABULARY = 1 << 20

Tokens = tuple[list[int], list[bool]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Sizes of a step's packs: their number, the tokens and trained tokens of the largest, and the totals of both."""

    num: int
    largest: int
    largest_trained: int
    tokens: int
    trained: int


@dataclass(frozen=True, slots=True)
class Row:
    """Sizes of a row of samples: its tokens, the trained ones, and the pairs of a token and one it attends to."""

    tokens: float
    trained: float
    pairs: float

    def times(self, factor: float) -> "Row":
        """Return the sizes of `factor` rows like it."""
        return Row(factor * self.tokens, factor * self.trained, factor * self.pairs)

    def __add__(self, other: "Row") -> "Row":
        return Row(self.tokens + other.tokens, self.trained + other.trained, self.pairs + other.pairs)


@dataclass(frozen=True, slots=True)
class Workload:
    """Rollouts that represent a step, with the number of the step's rollouts per sample (`multiple`) and their source.

    `env_s` is the environment's time per episode. `useless` is the share of rollouts in groups without a learning
    signal: others are sampled in their place.
    """

    samples: tuple[Sample, ...]
    multiple: float
    source: str
    env_s: float = 0.0
    useless: float = 0.0

    @property
    def num(self) -> float:
        """Return the number of rollouts that a step trains on."""
        return self.multiple * len(self.samples)

    def waves(self, group: int, resample_factor: int) -> list[float]:
        """Return the sizes of the waves of sampling: a step's rollouts, then replacements of useless groups, and so on.
        Their sum is at most `resample_factor` times the first."""
        sizes, bound = [self.num], resample_factor * self.num
        while (groups := round(self.num / group * self.useless ** len(sizes))) >= 1 and sum(sizes) < bound:
            sizes.append(min(float(groups * group), bound - sum(sizes)))
        return sizes

    @property
    def mean_length(self) -> float:
        """Return the mean tokens of a rollout."""
        return sum(len(sample.token_ids_T) for sample in self.samples) / len(self.samples)

    @property
    def replies(self) -> list[list[int]]:
        """Return the lengths of each rollout's replies."""
        return [reply_lengths(sample) for sample in self.samples]

    @property
    def num_sampled(self) -> float:
        """Return the number of sampled tokens that a step trains on."""
        return self.multiple * sum(map(sum, self.replies))

    @property
    def row(self) -> Row:
        """Return the sizes of a step if it were one row."""
        return row_of(self.samples).times(self.multiple)

    @property
    def num_prefilled(self) -> float:
        """Return the number of prompt and observation tokens that the engine computes for the trained rollouts; a
        common prefix counts once."""
        return max(0.0, self.row.tokens - self.num_sampled)

    def distinct_row(self, num: int) -> Row:
        """Return the sizes of a row of `num` rollouts, each of a different task."""
        prompts = {sample.token_ids_T[: sample.loss_mask_T.index(True)]: sample for sample in reversed(self.samples)}
        return row_of(list(prompts.values())).times(num / len(prompts))

    def rows(self, micro_batch_tokens: int) -> Rows:
        """Return the packs of a step."""
        return rows_of(pack_samples(self.samples, micro_batch_tokens, torch.device("cpu")), self.multiple)


def row_of(samples: Sequence[Sample]) -> Row:
    """Return the sizes of a row of samples, with common prefixes stored once."""
    (pack,) = pack_samples(samples, 1 << 60, torch.device("cpu"))
    return Row(len(pack.token_ids_T), len(pack.source_N), float((pack.positions_T + 1).sum()))


def rows_of(packs: Sequence[Pack], multiple: float = 1.0) -> Rows:
    """Return the sizes of packs, each of which represents `multiple` packs."""
    largest = max(packs, key=lambda pack: len(pack.token_ids_T))
    return Rows(
        num=max(len(packs), round(multiple * len(packs))),
        largest=len(largest.token_ids_T),
        largest_trained=max(len(pack.source_N) for pack in packs),
        tokens=round(multiple * sum(len(pack.token_ids_T) for pack in packs)),
        trained=round(multiple * sum(len(pack.source_N) for pack in packs)),
    )


def worst_rows(config: RLConfig | SFTConfig) -> Rows:
    """Return the packs of a step in which every conversation fills `seq_len` and none has a common prefix."""
    batch = config.orchestrator.batch_size if isinstance(config, RLConfig) else config.batch_size
    micro = config.trainer.micro_batch_tokens if isinstance(config, RLConfig) else config.micro_batch_tokens
    tokens, largest = batch * config.seq_len, max(micro, config.seq_len)
    return Rows(-(-tokens // largest), min(tokens, largest), min(tokens, largest), tokens, tokens)


def reply_lengths(sample: Sample) -> list[int]:
    """Return the lengths of the contiguous runs of trained tokens."""
    return [len([*run]) for trained, run in itertools.groupby(sample.loss_mask_T) if trained]


def sample_of(token_ids: Sequence[int], mask: Sequence[bool], advantage: float = 1.0) -> Sample:
    """Return a sample with placeholder log-probabilities, marked as `STALE` so that no guard compares them."""
    num = len(token_ids)
    return Sample(tuple(token_ids), tuple(mask), (-10.0,) * num, (advantage,) * num, version=STALE)


def from_earlier_run(output_dir: Path, batch_size: int) -> Workload | None:
    """Return the rollouts of the last step that a run in this directory has recorded; None if there are none."""
    for path in reversed([RunDir(output_dir).rollouts_of(step) for step in RunDir(output_dir).rollout_files()]):
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
    """Return the sample of a recorded rollout; None for a failed one or one that starts with a sampled token."""
    if rollout.failure or not any(rollout.loss_mask_T) or rollout.loss_mask_T[0]:
        return None
    return sample_of(rollout.token_ids_T, rollout.loss_mask_T)


def from_assumption(config: RLConfig | SFTConfig) -> Workload:
    """Assume rollouts with a prompt of a quarter of `seq_len`, at most 256 tokens, and up to `max_turns` replies of
    half of `max_tokens`, with messages of the environment of the same length. For `sft`, conversations fill half of
    `seq_len`."""
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
    """Return the number of rollouts in a step and in a group."""
    if isinstance(config, RLConfig):
        return config.orchestrator.batch_size, config.orchestrator.rollouts_per_example
    return config.batch_size, 1


def in_groups(played: Sequence[Sequence[Tokens]], group: int, seq_len: int) -> Iterator[Sample]:
    """Yield groups of `group` rollouts of the same task, which take turns among the task's variants in `played`. The
    common prefix of a group is everything before the first reply."""
    rng = random.Random(0)
    for number, (place, ways) in itertools.product(range(group), enumerate(played)):
        token_ids, mask = ways[(number + place) % len(ways)]
        if number:
            first = mask.index(True)
            token_ids = token_ids[:first] + [rng.randrange(VOCABULARY) for _ in token_ids[first:]]
        if any(mask[:seq_len]):
            yield sample_of(token_ids[:seq_len], mask[:seq_len], 1.0 if number % 2 else -1.0)


def few(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return the first samples, up to 200,000 tokens together."""
    kept, num = list[Sample](), 0
    for sample in samples:
        num += len(sample.token_ids_T)
        if kept and num > MOST_TOKENS:
            break
        kept.append(sample)
    return tuple(kept)
