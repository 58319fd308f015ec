"""Splits items into training and held-out items, and finds held-out tasks that are also training tasks.

The tasks' data are compared, because the ids always differ. The usual cause of a shared task is a generator that makes
task `i` of a split from `seed + i`: the splits of seeds 1 and 2 share all tasks but one.
"""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

from slimrl.config.reading.formats import flatten
from slimrl.config.reading.schema import Path
from slimrl.errors import UserError, nearest
from slimrl.io.rows import hash_fraction
from slimrl.io.text import hash_number
from slimrl.types import Split, Task

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
SHARE = 5


def split_by_hash(text: str) -> Split:
    """Return the split of a text, `train` or `test`. About one in five texts is held out. The hash of the text decides,
    so the result is the same on every machine and does not depend on other texts."""
    return "test" if hash_number(text, 1) % SHARE == 0 else "train"


def split_of(row: Mapping[str, Any], content: Any, where: str, test_share: float) -> Split:
    """Return the split of a row of a file: the one in its column `split`. Without this column, a hash of the row's
    `content` selects the share `test_share` for `test`. Raise UserError, prefixed with `where`, if there is no such
    split."""
    given = row.get("split")
    if given in SPLITS:
        return cast(Split, given)
    if given is not None:
        raise UserError(f"{where}: there is no split {given!r:.80}.{nearest(str(given), SPLITS)}")
    return "test" if hash_fraction(content) < test_share else "train"


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


def _count_places(tasks: Sequence[Task]) -> set[Path]:
    """Return the paths at which every task has an integer, and these integers are consecutive, in any order."""
    values: dict[Path, list[int]] = {}
    for task in tasks:
        for place, value in flatten(task.data):
            if isinstance(value, int) and not isinstance(value, bool):
                values.setdefault(place, []).append(value)
    return {
        place
        for place, found in values.items()
        if len(found) == len(tasks) > 1 and len({*found}) == len(found) == max(found) - min(found) + 1
    }


def _are_told_apart(tasks: Sequence[Task], without: set[Path]) -> bool:
    """Return True if most tasks still differ when the values at the paths `without` are ignored."""
    return 2 * len({_content(task, without) for task in tasks}) > len(tasks)


def _content(task: Task, without: set[Path]) -> str:
    """Return the values of a task as a JSON text, except the task's id and the values at the paths `without`."""
    kept = [(place, value) for place, value in flatten(task.data) if place not in without and value != task.id]
    return json.dumps(sorted(kept, key=itemgetter(0)), sort_keys=True, default=repr)
