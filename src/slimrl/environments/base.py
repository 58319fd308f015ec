"""Adds the defaults of `Taskset` to a taskset of another class, and creates episodes.

`Taskset` and `Environment` are in `types.py`. See `environments/reverse_text.py` for a complete example.
"""

import copy
from typing import Any, Protocol, cast, runtime_checkable

from slimrl.types import Environment, Task, Taskset, Turn, module_purpose

CONSTANT = "constant"
"""The name of the script that answers every task with the same text: the constant answer with the highest reward."""

SUCCESS = 1.0 - 1e-9
"""An episode with at least this reward is a full success: a sum of turn rewards may be rounded."""

DEFAULTS = Taskset()


@runtime_checkable
class Closing(Protocol):
    """An episode that holds resources, such as a process. They must be released even if the episode fails."""

    async def close(self) -> None:
        """Release the resources. This is called once when the episode is over, failed or cancelled."""


@runtime_checkable
class CutOff(Protocol):
    """An episode that has a reward even if it reaches the limit of turns or tokens before its end."""

    async def cut_off(self) -> Turn | None:
        """Return the last turn of an episode that a limit ended after `step`. Its reward is added to the rewards of
        `step`. None adds nothing."""


class _Completed:
    """A wrapper that adds the defaults of `Taskset` to a taskset of another class."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self.class_name, self.purpose = type(own).__name__, module_purpose(type(own))

    def __getattr__(self, name: str) -> Any:
        # Without `self_play`, an attribute `roles` has another meaning.
        has_own = self._has(name) and (name != "roles" or self._has("self_play"))
        return getattr(self._own if has_own else DEFAULTS, name)

    def _has(self, name: str) -> bool:
        # Check `dir` first, because it does not run properties. `hasattr` also finds the attributes of a `__getattr__`.
        return name in dir(self._own) or hasattr(self._own, name)


def complete(own: Any) -> Taskset:
    """Return the taskset, with the defaults of `Taskset` for the methods that its class lacks."""
    return own if isinstance(own, Taskset) else cast(Taskset, _Completed(own))


def is_default(taskset: Taskset, method: str) -> bool:
    """Return True if the class inherits this method from `Taskset`."""
    return getattr(getattr(taskset, method), "__func__", None) is vars(Taskset)[method]


def new_episode(taskset: Taskset, task: Task) -> Environment:
    """Start an episode on a copy of the task, which the environment may change."""
    return taskset.environment(copy.deepcopy(task))
