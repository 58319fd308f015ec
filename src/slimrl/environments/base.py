"""What a taskset and an episode may have besides what every one has: scripts, kinds of failure, self-play, clean-up.

`Taskset` and `Environment` themselves are in `types.py`. An option is found by its method's name: a taskset inherits
from nothing. See `environments/reverse_text.py` for a whole one.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from slimrl.types import Environment, Message, Rollout, Split, Task, Taskset, Turn

__all__ = [
    "CONSTANT",
    "SUCCESS",
    "Closing",
    "Environment",
    "FailureKinds",
    "GroupRewarding",
    "Message",
    "Offloading",
    "Preparing",
    "Script",
    "Scripted",
    "Seeding",
    "SelfPlay",
    "Split",
    "Task",
    "Taskset",
    "Turn",
    "allow_restarts",
    "new_episode",
    "seed_tasksets",
]

CONSTANT = "constant"
"""The name of the script that gives one answer to every task, the one that earns most."""

SUCCESS = 1.0 - 1e-9
"""An episode with at least this reward earned everything: a sum of turn rewards may be rounded."""

Script = Callable[[Task, int], Sequence[Message]]
"""A script maps a task and a seed to a whole conversation, whose assistant turns it wrote."""


@runtime_checkable
class Scripted(Protocol):
    """A taskset whose tasks can be played by scripts, without a model.

    Three names have a meaning. `expert` is right, and the supervised warm-up learns from it. `random` acts at random,
    and evaluation takes it as the lower bound. `constant` gives one answer to every task, and a run's closing table
    shows what that earns. Evaluation plays any other as `script:NAME`.
    """

    @property
    def scripts(self) -> Mapping[str, Script]:
        """The scripts by name, such as `{"expert": self.solve}`."""


@runtime_checkable
class FailureKinds(Protocol):
    """A taskset that can tell in what way an episode failed; evaluation counts the kinds."""

    def failure_kind(self, rollout: Rollout) -> str | None:
        """The kind of failure of a finished episode that did not earn everything, in a few words without details.

        It is empty where evaluation's own words suffice (out of turns, wrong), and None where nothing failed.
        """


@runtime_checkable
class SelfPlay(Protocol):
    """A taskset whose tasks the policy plays against itself, in all roles at once; see `rollout/self_play.py`."""

    @property
    def roles(self) -> Sequence[str]:
        """The names of the roles; empty if the policy plays alone, in the episode that `environment` gives."""

    def self_play(self, task: Task) -> Sequence[Environment]:
        """Fresh episodes on the task, one for each role in the order of `roles`, that wait for one another."""


@runtime_checkable
class GroupRewarding(Protocol):
    """A taskset that rewards the rollouts of a task in comparison with one another, which only training has."""

    @property
    def group_reward_names(self) -> Sequence[str]:
        """The names of these rewards; empty if there is none."""

    def group_rewards(self, task: Task, rollouts: Sequence[Rollout]) -> Mapping[str, Sequence[float]]:
        """What each finished rollout earns besides, by the reward's name. It is added to the last turn's reward, and
        logged as `env/reward_NAME`."""


@runtime_checkable
class Preparing(Protocol):
    """A taskset that has something long to do before its first task, as building an index; making it is quick, so that
    its `args` can be checked at once."""

    def prepare(self) -> None:
        """Does it, unless it is done. It is called once, before a model is loaded. Raises UserError if it cannot."""


@runtime_checkable
class Offloading(Protocol):
    """A taskset that holds memory of a device that the policy may need for training, as a judge's model does."""

    def offload(self) -> None:
        """Frees the memory until the next episode. It is called between steps, when no episode is being played."""


@runtime_checkable
class Seeding(Protocol):
    """A taskset whose environments draw from random generators that no checkpoint holds: those of another process."""

    def seed_generators(self, text: str) -> None:
        """Sets the generators to a state that the text decides. It is called before the episodes of a step or of an
        evaluation, so that a resumed run draws what an uninterrupted one does."""


@runtime_checkable
class Restarting(Protocol):
    """A taskset whose process is started again when it has ended, so often and no more until the next training step."""

    def allow_restarts(self) -> None:
        """Begins to count anew. It is called before each step, also while episodes go on."""


@runtime_checkable
class Closing(Protocol):
    """An episode that holds something, such as a process, that must be given back however the episode ends."""

    async def close(self) -> None:
        """Gives it back. It is called once when the episode is over: done, out of turns, failed or cancelled."""


def new_episode(taskset: Taskset, task: Task) -> Environment:
    """Start an episode on a copy of the task, so that an environment that changes its task changes no later episode."""
    return taskset.environment(copy.deepcopy(task))


def allow_restarts(tasksets: Iterable[Taskset]) -> None:
    """Has tasksets start processes again that have ended too often before."""
    for taskset in tasksets:
        if isinstance(taskset, Restarting):
            taskset.allow_restarts()


def seed_tasksets(tasksets: Iterable[Taskset], text: str) -> None:
    """Seeds the random generators that no checkpoint holds."""
    for taskset in tasksets:
        if isinstance(taskset, Seeding):
            taskset.seed_generators(text)
