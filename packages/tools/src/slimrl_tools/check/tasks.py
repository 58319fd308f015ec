"""Checks an environment's tasks: their ids, their data, and whether every call and process gives the same tasks."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, get_args

from slimrl.environments.find import call_user_code
from slimrl.environments.splits import shared_tasks
from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level
from slimrl.types import Split, Task, Taskset
from slimrl_tools.check.subjects import OTHER_PROCESS, SAME_TASKS, TASKS, TIME_OF_TASKS

SPLITS: tuple[Split, ...] = get_args(Split)
HASH_SEEDS = ("1", "2")
LONG_S = 5.0  # seconds for all splits; `tasks` is called several times before a run starts
Tasks = Mapping[Split, Sequence[Task]]


def read_tasks(taskset: Taskset) -> tuple[dict[Split, list[Any]], Finding]:
    """Return the tasks of each split, and a finding; it is a problem if `tasks` fails or returns anything else."""
    found: dict[Split, list[Any]] = {}
    for split in SPLITS:
        call = f"tasks({split!r})"
        try:
            found[split] = call_user_code(f"{call} failed", partial(_list, taskset, split))
        except UserError as error:
            return found, _tasks_problem(str(error), split)
        odd = [task for task in found[split] if not isinstance(task, Task) or not isinstance(task.id, str)]
        if odd:
            return found, _tasks_problem(f"{call} gives what is no `Task` with a text as id: {odd[0]!r:.80}", split)
    if not found["train"]:
        return found, _tasks_problem("tasks('train') gives none", "train")
    counts = ", ".join(f"{len(tasks)} in {split}" for split, tasks in found.items())
    if not found["test"]:
        remedy = "Hold some tasks out, as the split test."
        return found, TASKS.note(f"{counts}: none to evaluate on", remedy)
    return found, TASKS.ok(counts)


def _list(taskset: Taskset, split: Split) -> list[Any]:
    return list(taskset.tasks(split))


def _tasks_problem(found: str, split: Split) -> Finding:
    return TASKS.problem(found, "Give an empty list for a split that there is none of." * (split == "validation"))


def time_finding(first_s: float, again_s: float) -> Finding:
    """Return a finding on the seconds that the tasks of all splits take, at the first call and again."""
    text = f"{first_s:.2f} s for all splits, {again_s:.2f} s at the next call"
    if again_s >= LONG_S:
        return TIME_OF_TASKS.problem(text)
    if first_s >= LONG_S:
        return TIME_OF_TASKS.note(text, "What takes long belongs into `prepare()`, or into a file.")
    return TIME_OF_TASKS.ok(text)


def double_ids(tasks: Tasks) -> str:
    """Describe duplicate ids within a split; return an empty text if there are none."""
    for split, found in tasks.items():
        twice = [name for name, num in Counter(task.id for task in found).items() if num > 1]
        if twice:
            return f"{len(twice)} ids are used more than once in {split}, such as `{twice[0]:.80}`"
    return ""


def data_fault(tasks: Tasks) -> str:
    """Describe the first task with data that JSON does not preserve; return an empty text if there is none."""
    for task in chain(*tasks.values()):
        if fault := json_fault(task.data):
            return f"the data of task `{task.id:.80}` {fault}"
    return ""


def json_fault(data: object) -> str:
    """Describe how JSON changes the data of a task; return an empty text if it does not.

    >>> json_fault({"a": (1, 2.5, None)}), json_fault({"a": {1: "one"}})
    ('', 'has keys that are no texts, and JSON makes them some')
    """
    if not isinstance(data, Mapping):
        return f"is a {type(data).__name__}, and no dictionary"
    try:
        again = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return "" if again == with_lists(data) else "has keys that are no texts, and JSON makes them some"


def with_lists(value: Any) -> Any:
    """Return a copy of nested data with lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: with_lists(item) for key, item in value.items()}
    return [with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def shared_fault(tasks: Tasks) -> str:
    """Describe training tasks that another split contains too; return an empty text if there are none."""
    held_out: tuple[Split, ...] = ("test", "validation")
    for split in held_out:
        if shared := shared_tasks(tasks["train"], tasks[split]):
            here, there = shared[0]
            num = f"{len(shared)} of {len(tasks[split])} tasks of {split}"
            return f"{num} are training tasks too: {here.id:.60} is {there.id:.60}"
    return ""


def repeat_finding(tasks: Tasks, again: Tasks, found_again: Finding) -> Finding:
    """Return a finding on whether a second call gives the same tasks; `found_again` is the finding on that call."""
    if found_again.level is Level.PROBLEM:
        return SAME_TASKS.problem(f"a second call failed: {found_again.found}", found_again.remedy)
    fault = difference(tasks, again)
    return SAME_TASKS.verdict(fault and f"a second call of tasks() gives others: {fault}")


def processes_finding(tasks: Tasks, elsewhere: Callable[[str], Taskset]) -> Finding:
    """Return a finding on whether other processes, where Python hashes texts with other seeds, have the same tasks."""

    def read(seed: str) -> Tasks:
        taskset = elsewhere(seed)
        return {split: list(taskset.tasks(split)) for split in SPLITS}

    try:
        with ThreadPoolExecutor() as pool:
            others = list(pool.map(read, HASH_SEEDS))
    except UserError as error:
        return OTHER_PROCESS.problem(str(error), "Make the tasks in every process in the same way.")
    fault = next(filter(None, (difference(tasks, other) for other in others)), "")
    return OTHER_PROCESS.verdict(fault and f"another process has other tasks: {fault}")


def difference(tasks: Tasks, others: Tasks) -> str:
    """Describe the first difference between tasks that should be the same; return an empty text if there is none."""
    for split in SPLITS:
        mine, theirs = tasks[split], others[split]
        if len(mine) != len(theirs):
            return f"{len(mine)} and {len(theirs)} in {split}"
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one.id != other.id:
                return f"task {place} of {split} is `{one.id:.60}` and `{other.id:.60}`"
            if with_lists(one.data) != with_lists(other.data):
                return f"task `{one.id:.60}` of {split} holds something else"
    return ""
