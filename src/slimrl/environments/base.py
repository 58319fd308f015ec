"""Completes a taskset whose class is a user's own, and makes its episodes.

`Taskset` and `Environment` are in `types.py`. See `environments/reverse_text.py` for a whole one.
"""

import copy
from typing import Any, Protocol, cast, runtime_checkable

from slimrl.types import Environment, Task, Taskset, module_purpose

CONSTANT = "constant"
"""The name of the script that gives one answer to every task, the one that earns most."""

SUCCESS = 1.0 - 1e-9
"""An episode with at least this reward earned everything: a sum of turn rewards may be rounded."""

DEFAULTS = Taskset()
PARTNERS = {"roles": "self_play", "group_reward_names": "group_rewards"}  # an attribute that counts with a method alone


@runtime_checkable
class Closing(Protocol):
    """An episode that holds something, such as a process, that must be released however the episode ends."""

    async def close(self) -> None:
        """Release it. It is called once when the episode is over: done, out of turns, failed or cancelled."""


class _Completed:
    """A taskset of a class that does not inherit from `Taskset`: its own attributes, and the defaults of all others."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self.class_name, self.purpose = type(own).__name__, module_purpose(type(own))

    def __getattr__(self, name: str) -> Any:
        has_own = self._has(name) and self._has(PARTNERS.get(name, name))
        return getattr(self._own if has_own else DEFAULTS, name)

    def _has(self, name: str) -> bool:
        # `dir` comes first, as it runs no property; a class that delegates lists nothing there.
        return name in dir(self._own) or hasattr(self._own, name)


def complete(own: Any) -> Taskset:
    """The taskset, with the defaults of `Taskset` for the methods that its class lacks."""
    return own if isinstance(own, Taskset) else cast(Taskset, _Completed(own))


def is_default(taskset: Taskset, method: str) -> bool:
    """Whether the class leaves a method to `Taskset`."""
    return getattr(getattr(taskset, method), "__func__", None) is vars(Taskset)[method]


def new_episode(taskset: Taskset, task: Task) -> Environment:
    """Start an episode on a copy of the task, so that an environment that changes its task changes no later episode."""
    return taskset.environment(copy.deepcopy(task))
