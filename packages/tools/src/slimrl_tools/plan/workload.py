"""Predicts the rollouts of a training step, as samples that the trainer can pack.

The lengths of rollouts are unknown before a run. They are taken from the first available source: the rollouts of an
earlier run in the same directory, a recorded run of the same environments, or an assumption. `Workload.source` names
the source. For recorded runs, `outlines/NAME.json` has the lengths of each rollout's parts and of its common prefix,
but no texts. `benchmarks/learning/outlines.py` writes these files. There, a rollout is a list of numbers:

    [like, shared, unsampled, sampled, unsampled, sampled, ...]

The rollout shares its first `shared` tokens with the earlier rollout number `like`. The other numbers are the lengths
of its parts, in which unsampled and sampled tokens alternate.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from slimrl.config.data import ExpertDataConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import read_rollouts
from slimrl.trainer.fake import STALE
from slimrl.trainer.packing import pack_samples
from slimrl.types import Rollout, Sample

MOST_TOKENS = 200_000  # tokens of the samples that represent a batch; a larger batch counts as a multiple
MOST_TASKS = 16  # tasks of an assumed batch
# Environments whose episodes end with the first reply, if they have no tools.
ONE_TURN = ("code", "dataset", "reasoning-gym", "reverse-text")


@dataclass(frozen=True, slots=True)
class Rows:
    """The sizes of a step's packs: `num` packs with `tokens` tokens in total. A pack has at most `largest` tokens and
    `largest_trained` trained tokens."""

    num: int
    largest: int
    largest_trained: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """Sizes of a row of samples: its tokens, its trained tokens, and its pairs of a query token and an attended
    token."""

    tokens: float
    trained: float
    pairs: float

    def times(self, factor: float) -> "Row":
        """Return the total sizes of `factor` rows like this row."""
        return Row(factor * self.tokens, factor * self.trained, factor * self.pairs)


@dataclass(frozen=True, slots=True)
class Workload:
    """Samples that represent the rollouts of a step. Each sample counts as `multiple` rollouts. `source` is the origin
    of the samples.

    `env_s` is the environment's time per episode in seconds. `useless` is the share of rollouts in groups without a
    learning signal; replacements are sampled for these groups.
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
        """Return the number of rollouts in each wave of sampling. The first wave has a step's rollouts. Each later wave
        replaces the useless groups (of `group` rollouts) of the wave before. The sum is at most `resample_factor` times
        the first wave."""
        sizes, bound = [self.num], resample_factor * self.num
        while (groups := round(self.num / group * self.useless ** len(sizes))) >= 1 and sum(sizes) < bound:
            sizes.append(min(float(groups * group), bound - sum(sizes)))
        return sizes

    @property
    def mean_length(self) -> float:
        """Return the mean number of tokens of a rollout."""
        return sum(len(sample.token_ids_T) for sample in self.samples) / len(self.samples)

    @property
    def replies(self) -> list[list[int]]:
        """Return the lengths of each rollout's replies: the uninterrupted sequences of trained tokens."""
        masks = [itertools.groupby(sample.loss_mask_T) for sample in self.samples]
        return [[len([*run]) for trained, run in runs if trained] for runs in masks]

    @property
    def num_sampled(self) -> float:
        """Return the number of sampled tokens that a step trains on."""
        return self.multiple * sum(map(sum, self.replies))

    @property
    def row(self) -> Row:
        """Return the sizes of a single row with all rollouts of a step."""
        return row_of(self.samples).times(self.multiple)

    @property
    def num_prefilled(self) -> float:
        """Return the number of prompt and observation tokens that the engine computes for the trained rollouts; a
        common prefix counts once."""
        return max(0.0, self.row.tokens - self.num_sampled)

    def distinct_row(self, num: int) -> Row:
        """Return the sizes of a row of `num` rollouts, each of a different task."""
        distinct = _of_different_tasks(self.samples)
        return row_of(distinct).times(num / len(distinct))

    def rows(self, micro_batch_tokens: int) -> Rows:
        """Return the sizes of a step's packs. Each pack of the samples represents `multiple` packs."""
        packs = pack_samples(self.samples, micro_batch_tokens, torch.device("cpu"))
        lengths = [len(pack.token_ids_T) for pack in packs]
        return Rows(
            num=max(len(packs), round(self.multiple * len(packs))),
            largest=max(lengths),
            largest_trained=max(len(pack.source_N) for pack in packs),
            tokens=round(self.multiple * sum(lengths)),
        )


def row_of(samples: Sequence[Sample]) -> Row:
    """Return the sizes of a row of samples, with common prefixes stored once."""
    (pack,) = pack_samples(samples, 1 << 60, torch.device("cpu"))
    return Row(len(pack.token_ids_T), len(pack.source_N), float((pack.positions_T + 1).sum()))


def worst_rows(config: RLConfig | SFTConfig) -> Rows:
    """Return the sizes of a step's packs if every conversation fills `seq_len` and shares no prefix with another."""
    batch = config.orchestrator.batch_size if isinstance(config, RLConfig) else config.batch_size
    micro = config.trainer.micro_batch_tokens if isinstance(config, RLConfig) else config.micro_batch_tokens
    tokens, largest = batch * config.seq_len, max(micro, config.seq_len)
    return Rows(-(-tokens // largest), min(tokens, largest), min(tokens, largest), tokens)


def sample_of(token_ids: Sequence[int], mask: Sequence[bool], advantage: float = 1.0) -> Sample:
    """Return a sample with placeholder log-probabilities, marked as `STALE` so that no guard compares them."""
    num = len(token_ids)
    return Sample(tuple(token_ids), tuple(mask), (-10.0,) * num, (advantage,) * num, version=STALE)


def few(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return the first samples with up to `MOST_TOKENS` tokens in total, but at least one sample."""
    kept, num = list[Sample](), 0
    for sample in samples:
        num += len(sample.token_ids_T)
        if kept and num > MOST_TOKENS:
            break
        kept.append(sample)
    return tuple(kept)


def from_earlier_run(output_dir: Path, batch_size: int) -> Workload | None:
    """Return a workload from the last usable file of rollouts that an earlier run wrote to `output_dir`; None without
    such a file."""
    for path in reversed([RunDir(output_dir).rollouts_of(step) for step in RunDir(output_dir).rollout_files()]):
        try:
            records = read_rollouts(path)
        except (UserError, LookupError, ValueError, TypeError):
            continue
        found = [(sample, one.has_signal) for one in records if (sample := rollout_sample(one.rollout))]
        if trained := few(sample for sample, has_signal in found if has_signal):
            useless = 1 - sum(has_signal for _, has_signal in found) / len(found)
            return Workload(trained, batch_size / len(trained), f"lengths of {path}", useless=useless)
    return None


def rollout_sample(rollout: Rollout) -> Sample | None:
    """Convert a recorded rollout to a sample; None if the rollout failed, has no sampled token, or starts with a
    sampled token."""
    if rollout.failure or not any(rollout.loss_mask_T) or rollout.loss_mask_T[0]:
        return None
    return sample_of(rollout.token_ids_T, rollout.loss_mask_T)


def expect_workload(config: RLConfig | SFTConfig) -> Workload:
    """Return the expected rollouts of a step. Nothing is downloaded or built, and no user code runs."""
    found = None
    if isinstance(config, RLConfig):
        found = from_earlier_run(Path(config.output_dir), config.orchestrator.batch_size)
    return found or from_recorded(config) or from_assumption(config)


def from_recorded(config: RLConfig | SFTConfig) -> Workload | None:
    """Return the rollouts of a recorded run with the same environments, cut to `seq_len`; None without such a run. The
    source states whether the tasks, the model or the sampling differ."""
    if isinstance(config, RLConfig):
        ids, batch = [env.id for env in config.orchestrator.env], config.orchestrator.batch_size
    else:
        ids, batch = [config.data.env.id] if isinstance(config.data, ExpertDataConfig) else [], config.batch_size
    for path in (files("slimrl_tools.plan") / "outlines").iterdir():
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if [env["id"] for env in recorded["subject"]["environments"]] != [one.replace("_", "-") for one in ids]:
            continue
        longest = max(sum(parts) for _, _, *parts in recorded["rollouts"])
        has_room = config.seq_len == recorded["seq_len"] or longest < min(config.seq_len, recorded["seq_len"])
        is_same = has_room and isinstance(config, RLConfig) and recorded["subject"] == subject_of(config)
        cut = _cut(samples_of(recorded["rollouts"]), config.seq_len)
        if samples := few(cut if isinstance(config, RLConfig) else _of_different_tasks([*cut])):
            by = "scripted episodes" if recorded.get("by") == "scripts" else "a recorded run"
            source = f"lengths of {by} of {recorded['recipe']}{'' if is_same else ', whose settings differ'}"
            return Workload(samples, batch / len(samples), source, recorded["env_s"], useless=recorded["useless"])
    return None


def from_assumption(config: RLConfig | SFTConfig) -> Workload:
    """Assume the lengths of rollouts. A prompt has a quarter of `seq_len`, at most 256 tokens. Up to `max_turns`
    replies follow, each with half of `max_tokens`. Between two replies, the environment sends a message of the same
    length. For `sft`, conversations fill half of `seq_len`."""
    if isinstance(config, SFTConfig):
        batch, num_tasks, prompt = config.batch_size, config.batch_size, max(1, config.seq_len // 4)
        parts, source = [prompt] * 2, "assumed: conversations of half of seq_len, half of it replies"
    else:
        episodes = config.orchestrator
        batch, num_tasks = episodes.batch_size, min(episodes.batch_size // episodes.rollouts_per_example, MOST_TASKS)
        reply, prompt = max(1, episodes.sampling.max_tokens // 2), max(1, min(256, config.seq_len // 4))
        most = 1 if all(_has_one_turn(env.id, env.args) for env in episodes.env) else episodes.max_turns
        turns = max(1, min(most, (config.seq_len - prompt) // (2 * reply)))
        parts = [prompt, *[reply] * (2 * turns - 1)]
        source = f"assumed: a prompt of {prompt} tokens, {turns} replies of {reply}"
    # The rollouts of a group share only their prompt. Rollout number `task` is the first rollout of its task.
    copies = 1 if isinstance(config, SFTConfig) else config.orchestrator.rollouts_per_example
    outline = ([task, prompt if copy else 0, *parts] for copy in range(copies) for task in range(num_tasks))
    samples = few(_cut(samples_of(outline), config.seq_len))
    return Workload(samples, batch / len(samples), source)


def _cut(samples: Iterable[Sample], seq_len: int) -> Iterator[Sample]:
    for one in samples:
        if any(one.loss_mask_T[:seq_len]):
            yield sample_of(one.token_ids_T[:seq_len], one.loss_mask_T[:seq_len], one.advantages_T[0])


def _of_different_tasks(samples: Sequence[Sample]) -> list[Sample]:
    """Return one sample per task: the first sample of each prompt."""
    prompts = {sample.token_ids_T[: sample.loss_mask_T.index(True)]: sample for sample in reversed(samples)}
    return [*prompts.values()]


def subject_of(config: RLConfig) -> dict[str, Any]:
    """Return the settings that determine the lengths of rollouts."""
    episodes = config.orchestrator
    return {
        "model": config.model.name,
        "environments": [{"id": env.id, "args": env.args} for env in episodes.env],
        "group": episodes.rollouts_per_example,
        "max_turns": episodes.max_turns,
        "sampling": episodes.sampling.model_dump(mode="json"),
        "warmup_steps": config.warmup.max_steps,
    }


def samples_of(outline: Iterable[Sequence[int]]) -> Iterator[Sample]:
    """Yield samples with the lengths and common prefixes of an outline, but with artificial token ids."""
    fresh, samples = itertools.count(), list[Sample]()
    for like, shared, *parts in outline:
        known = samples[like].token_ids_T[:shared] if shared else ()
        tokens = [*known, *itertools.islice(fresh, sum(parts) - shared)]
        mask = [place % 2 == 1 for place, length in enumerate(parts) for _ in range(length)]
        samples.append(sample_of(tokens, mask, 1.0 if len(samples) % 2 else -1.0))
        yield samples[-1]


def _has_one_turn(env_id: str, args: Mapping[str, Any]) -> bool:
    return env_id.partition(":")[0].replace("_", "-") in ONE_TURN and not args.get("tools")
