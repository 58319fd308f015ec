"""The order of the training tasks: the tasksets take turns, and each is shuffled again every epoch.

The order depends only on the seed, so a checkpoint stores only the position in this order.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.environments.find import tasks_of
from slimrl.errors import UserError
from slimrl.types import Task, Taskset


class Shuffle:
    """An endless sequence of indices below `length`: every epoch contains each index once, in a new order."""

    def __init__(self, length: int, seed: str) -> None:
        self._length = length
        self._seed = seed
        self._epoch, self._order = -1, list[int]()

    def at(self, position: int) -> int:
        """Return the index at a 0-based position."""
        epoch, place = divmod(position, self._length)
        if epoch != self._epoch:  # shuffle once per epoch, not at every call
            order = random.Random(f"{self._seed}/{epoch}").sample(range(self._length), self._length)
            self._epoch, self._order = epoch, order
        return self._order[place]


@dataclass(frozen=True, slots=True)
class Draw:
    """One task. `env` is the index of the task's taskset."""

    env: int
    taskset: Taskset
    task: Task


class Curriculum:
    """An endless sequence of training tasks. `seed` is any text; different texts give unrelated orders."""

    def __init__(self, tasksets: Sequence[Taskset], seed: str) -> None:
        self._tasksets = [(taskset, tasks_of(taskset, "train")) for taskset in tasksets]
        for taskset, tasks in self._tasksets:
            if not tasks:
                raise UserError(f"{taskset.class_name} has no training tasks; check its `args`.")
        self._shuffles = [Shuffle(len(tasks), f"{seed}/{n}") for n, (_, tasks) in enumerate(self._tasksets)]

    def draw(self, position: int) -> Draw:
        """Return the task at a 0-based position of the order."""
        # Positions cycle through the tasksets, so a batch has about equally many tasks of each taskset.
        round_number, number = divmod(position, len(self._tasksets))
        taskset, tasks = self._tasksets[number]
        return Draw(number, taskset, tasks[self._shuffles[number].at(round_number)])
