"""Draws groups of recorded episodes for the simulation of the pipeline, with repetition.

Whole groups are drawn, as they were played. So a long reply stays together with the slow tool that it calls, and so do
the episodes of a hard task. No distribution is fitted: the longest simulated episode is the longest recorded one, and
equally rare.
"""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, read_rollouts
from slimrl.types import Rollout
from slimrl_tools.plan.workload import Row, rollout_sample, row_of

MOST_FILES = 40  # the last of a run's steps: lengths drift, and reading takes time
FEWEST_GROUPS = 4


class Turn(NamedTuple):
    """A reply of `sampled` tokens to `read` new tokens, and the environment's seconds to answer it.

    The first turn of an episode samples nothing: its seconds are those of the environment's start. The second reads the
    prompt, which the episodes of a group have in common.
    """

    read: int
    sampled: int
    env_s: float


Episode = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """The episodes of one task. `row` is the trainer's work on them; `has_signal` is True if it trains on them."""

    episodes: tuple[Episode, ...]
    row: Row
    has_signal: bool


@dataclass(frozen=True, slots=True)
class RecordedEpisodes:
    """The groups of a run; `source` names the files."""

    groups: tuple[EpisodeGroup, ...]
    source: str

    def draw(self, number: int, size: int, seed: int) -> EpisodeGroup:
        """Return group `number` of a run, a reproducible draw. If the recorded group has another size, its episodes are
        drawn."""
        rng = random.Random(f"{seed}/{number}")
        group = self.groups[rng.randrange(len(self.groups))]
        if len(group.episodes) == size:
            return group
        episodes = tuple(rng.choices(group.episodes, k=size))
        return EpisodeGroup(episodes, group.row.times(size / len(group.episodes)), group.has_signal)


def read_episodes(run_dir: Path, first: int = 0) -> RecordedEpisodes:
    """Read the groups in a run's last rollout files, from step `first` on. Raises UserError if there are too few."""
    named = [RunDir(run_dir).rollouts_of(step) for step in RunDir(run_dir).rollout_files() if step >= first]
    paths = [path for path in named if path.is_file()][-MOST_FILES:]
    by_draw: dict[int, list[RolloutRecord]] = {}
    for record in (record for path in paths for record in _read(path)):
        by_draw.setdefault(record.draw, []).append(record)
    groups = tuple(map(group_of, by_draw.values()))
    if len(groups) < FEWEST_GROUPS:
        raise UserError(
            f"{run_dir}/rollouts has {len(groups)} groups, and {FEWEST_GROUPS} are the fewest from which a longer run "
            "can be drawn. Name the output_dir of an `rl` run that has made a few steps."
        )
    num = sum(map(len, by_draw.values()))
    source = f"{len(groups)} groups of {num} episodes, of {paths[0].name} to {paths[-1].name} in {run_dir}"
    return RecordedEpisodes(groups, source)


def group_of(records: Sequence[RolloutRecord]) -> EpisodeGroup:
    """Make a group of the rollouts of one task. A failed rollout is played too, but not trained on."""
    samples = [sample for record in records if (sample := rollout_sample(record.rollout))]
    has_signal = any(record.has_signal and not record.rollout.failure for record in records)
    row = row_of(samples) if samples else Row(0, 0, 0)
    return EpisodeGroup(tuple(episode_of(record.rollout) for record in records), row, has_signal)


def episode_of(rollout: Rollout) -> Episode:
    """Return a rollout as an episode: the tokens read and sampled in each turn, and the environment's seconds."""
    waits = itertools.chain(rollout.env_s, itertools.repeat(0.0))  # a failed call has no time
    starts = [0, *(turn.stop for turn in rollout.turns)]
    turns = [Turn(turn.start - before, len(turn), 0.0) for before, turn in zip(starts, rollout.turns, strict=False)]
    return tuple(turn._replace(env_s=wait_s) for turn, wait_s in zip([Turn(0, 0, 0.0), *turns], waits, strict=False))


def _read(path: Path) -> list[RolloutRecord]:
    try:
        return read_rollouts(path)
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"{path} is no file of rollouts ({type(error).__name__}: {error}). Delete it.") from None
