"""Self-play: episodes of one game that wait for one another, so that the ordinary agent loop plays all sides of it.

Each role is an episode with a rollout of its own. A game's episodes share an `turn_taking.py`: what one does is
what another has been waiting for inside its `start` or `step`, and whoever leaves before the end spoils the game for
those who wait, as `drop/partner_left`. Knows nothing of any game.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slimrl.environments.base import Environment, SelfPlay, Taskset
from slimrl.errors import RolloutError
from slimrl.rollout.episode import EpisodeSpec
from slimrl.types import Split, Task

SEED_STRIDE = 1 << 16  # turns add to a seed: those of two roles must not meet


def self_play_roles(taskset: Taskset) -> Sequence[str]:
    """The names of the roles that the policy plays in one game; none where a task is played by one alone."""
    return taskset.roles if isinstance(taskset, SelfPlay) else ()


def self_play_specs(spec: EpisodeSpec) -> list[EpisodeSpec]:
    """One attempt for each role, to be played together by `run_groups`; itself, where a task is played by one alone."""
    taskset = spec.taskset
    if not isinstance(taskset, SelfPlay) or not self_play_roles(taskset):
        return [spec]
    sampling, shared = spec.sampling, _Shared(taskset, len(taskset.roles))
    return [
        EpisodeSpec(
            _Seat(taskset, shared, place),
            spec.task,
            replace(sampling, seed=sampling.seed + place * SEED_STRIDE),
            role,
        )
        for place, role in enumerate(taskset.roles)
    ]


@dataclass
class _Shared:
    """The episodes of one table, made when the first of them begins: what fails then is that episode's failure."""

    taskset: SelfPlay
    num_roles: int
    episodes: list[Environment] = field(default_factory=list)

    def episode(self, task: Task, place: int) -> Environment:
        if not self.episodes:
            episodes = list(self.taskset.self_play(task))
            if len(episodes) != self.num_roles:
                raise RolloutError(
                    "environment_error", f"self_play() gave {len(episodes)} episodes for {self.num_roles} roles"
                )
            self.episodes = episodes
        return self.episodes[place]


@dataclass(frozen=True, slots=True)
class _Seat:
    """The taskset as one role sees it."""

    taskset: Taskset
    shared: _Shared
    place: int

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.taskset.tasks(split)

    def environment(self, task: Task) -> Environment:
        return self.shared.episode(task, self.place)
