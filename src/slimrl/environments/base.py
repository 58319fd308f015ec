"""What an environment is, and how one is found by its `id`.

A `Taskset` knows the tasks of both splits and makes one single-use `Environment` per episode. The environment speaks in
chat messages and knows nothing of tokens, models or training; see `environments/reverse_text.py` for a whole one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from slimrl.io.text import is_writable
from slimrl.types import Message, Rollout, Split, Task, Turn

SUCCESS = 1.0 - 1e-9
"""An episode of this reward earned all there is: a sum of turns' rewards may be rounded."""


Script = Callable[[Task, int], Sequence[Message]]
"""Plays a task with a seed: a whole conversation, in which the script speaks as the assistant."""


class Environment(Protocol):
    """One episode. Used once, never shared."""

    async def start(self) -> list[Message]:
        """The opening messages, ending with one the policy is to answer."""

    async def step(self, reply: str) -> Turn:
        """React to the policy's reply."""


@runtime_checkable
class Closing(Protocol):
    """An environment that holds something, such as a process, which must be given back however the episode ends."""

    async def close(self) -> None:
        """Called once, when the episode is over: done, out of turns, failed or cancelled."""


class Taskset(Protocol):
    """The tasks of an environment. Constructed with the `args` of its config section as keywords."""

    def tasks(self, split: Split) -> Sequence[Task]:
        """The tasks of a split, the same ones in the same order every time; the splits share none. One without a
        `validation` split returns none for it."""

    def environment(self, task: Task) -> Environment:
        """A fresh episode on the task."""


@runtime_checkable
class Scripted(Protocol):
    """A taskset that scripts of its own can play.

    Supervised warm-up learns from the script `expert`, evaluation compares a policy with `expert`, `random` and others.
    """

    @property
    def scripts(self) -> Mapping[str, Script]:
        """The scripts by name, such as `{"expert": self.solve}`."""


@runtime_checkable
class FailureKinds(Protocol):
    """A taskset that can also tell in what way an episode failed; evaluation counts that."""

    def failure_kind(self, rollout: Rollout) -> str | None:
        """A kind of failure, in a few words that name no detail, of a finished episode that did not earn everything.
        Empty if there is nothing more to say than evaluation does; None if it is no failure."""


@runtime_checkable
class SelfPlay(Protocol):
    """A taskset whose tasks the policy can play against itself, in all roles at once; see `rollout/self_play.py`."""

    @property
    def roles(self) -> Sequence[str]:
        """Their names; none if its tasks are played by one alone, as `environment` gives them."""

    def self_play(self, task: Task) -> Sequence[Environment]:
        """Fresh episodes on the task, one for each role in that order, that wait for one another."""


@runtime_checkable
class Offloading(Protocol):
    """A taskset that holds memory of a device which the policy may need for training, such as a judge's."""

    def offload(self) -> None:
        """Give it back until the next episode. Called between steps, when no episode is being played."""


def is_message(value: object) -> bool:
    """Whether it is a role and a text, as templates need. Half of a surrogate pair is no text to a tokenizer."""
    fields = value if isinstance(value, dict) else {}
    texts = fields.get("role"), fields.get("content")
    return all(isinstance(text, str) and is_writable(text) for text in texts)
