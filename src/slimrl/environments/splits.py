"""Finds held-out tasks that are also training tasks. The tasks' data are compared, because the ids always differ.

The usual cause is a generator that makes task `i` of a split from `seed + i`: the splits of seeds 1 and 2 share all
tasks but one.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slimrl.types import Task

Leaf = tuple[str, Any]  # the path of a value in the data, such as `/metadata/difficulty/0`, and the value


def shared_tasks(train: Sequence[Task], held_out: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Return the held-out tasks with the same content as a training task, each with the first such training task.

    Numbers that only count the tasks of a split, such as an index or a seed, are ignored. But if most tasks would be
    equal without them, they are compared.
    """
    counting = _count_places(train) & _count_places(held_out)
    if counting and not (_are_told_apart(train, counting) and _are_told_apart(held_out, counting)):
        counting = set()
    wanted = {_content(task, counting): task for task in reversed(held_out)}
    found: dict[str, Task] = {}
    for task in train:
        if (content := _content(task, counting)) in wanted:
            found.setdefault(content, task)
    pairs = ((task, found.get(_content(task, counting))) for task in held_out)
    return [(task, other) for task, other in pairs if other is not None]


def _count_places(tasks: Sequence[Task]) -> set[str]:
    """Return the paths at which every task has an integer, and these integers are consecutive, in any order."""
    values: dict[str, list[int]] = {}
    for task in tasks:
        for place, value in _leaves(task.data):
            if isinstance(value, int) and not isinstance(value, bool):
                values.setdefault(place, []).append(value)
    return {
        place
        for place, found in values.items()
        if len(found) == len(tasks) > 1 and len({*found}) == len(found) == max(found) - min(found) + 1
    }


def _are_told_apart(tasks: Sequence[Task], without: set[str]) -> bool:
    """Return True if most tasks still differ when the values at the paths `without` are ignored."""
    return 2 * len({_content(task, without) for task in tasks}) > len(tasks)


def _content(task: Task, without: set[str]) -> str:
    """Return the values of a task as a JSON text, except the task's id and the values at the paths `without`."""
    kept = [(place, value) for place, value in _leaves(task.data) if place not in without and value != task.id]
    return json.dumps(kept, sort_keys=True, default=repr)


def _leaves(value: Any, place: str = "") -> Iterator[Leaf]:
    """Yield the values within nested data, each with its path, in the order of the keys."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{place}/{key}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}/{number}")
    else:
        yield place, value
