"""Draws groups of recorded episodes, with replacement, for the simulation of the pipeline.

Only whole groups are drawn. A long reply therefore stays together with the slow tool that it calls, and the episodes of
a hard task stay together, too. No distribution is fitted. The longest simulated episode is the longest recorded
episode, and is as rare as in the recording.
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

MOST_FILES = 40  # files of a run's last steps: lengths change during a run, and reading takes time
FEWEST_GROUPS = 4


class Turn(NamedTuple):
    """A reply of `sampled` tokens to `read` new tokens, and the seconds `env_s` in which the environment answers it.

    The first turn of an episode samples nothing; its `env_s` is the time to start the environment. The second turn
    reads the prompt, which is the same in all episodes of a group.
    """

    read: int
    sampled: int
    env_s: float


Episode = tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """The episodes of one task. `row` is the trainer's work on them; `has_signal` is True if the trainer uses them."""

    episodes: tuple[Episode, ...]
    row: Row
    has_signal: bool


@dataclass(frozen=True, slots=True)
class RecordedEpisodes:
    """The recorded groups of a run. `source` names their files."""

    groups: tuple[EpisodeGroup, ...]
    source: str

    def draw(self, number: int, size: int, seed: int) -> EpisodeGroup:
        """Draw group `number` of a simulated run, reproducibly for a `seed`. If the recorded group has another size,
        draw `size` of its episodes with replacement."""
        rng = random.Random(f"{seed}/{number}")
        group = self.groups[rng.randrange(len(self.groups))]
        if len(group.episodes) == size:
            return group
        episodes = tuple(rng.choices(group.episodes, k=size))
        return EpisodeGroup(episodes, group.row.times(size / len(group.episodes)), group.has_signal)


def read_episodes(run_dir: Path, first: int = 0) -> RecordedEpisodes:
    """Read the groups in a run's last rollout files, without the steps before `first`. Raises UserError if there are
    fewer than `FEWEST_GROUPS`."""
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
    """Make a group of the rollouts of one task. A failed rollout is simulated, too, but the trainer does not use it."""
    samples = [sample for record in records if (sample := rollout_sample(record.rollout))]
    has_signal = any(record.has_signal and not record.rollout.failure for record in records)
    row = row_of(samples) if samples else Row(0, 0, 0)
    return EpisodeGroup(tuple(episode_of(record.rollout) for record in records), row, has_signal)


def episode_of(rollout: Rollout) -> Episode:
    """Return a rollout as an episode: the tokens read and sampled in each turn, and the environment's seconds."""
    waits = itertools.chain(rollout.env_s, itertools.repeat(0.0))  # a failed call has no recorded time
    starts = [0, *(turn.stop for turn in rollout.turns)]
    turns = [Turn(turn.start - before, len(turn), 0.0) for before, turn in zip(starts, rollout.turns, strict=False)]
    return tuple(turn._replace(env_s=wait_s) for turn, wait_s in zip([Turn(0, 0, 0.0), *turns], waits, strict=False))


def _read(path: Path) -> list[RolloutRecord]:
    try:
        return read_rollouts(path)
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"{path} is no file of rollouts ({type(error).__name__}: {error}). Delete it.") from None
