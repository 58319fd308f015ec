"""Checks an environment's tasks: their ids, their data, and whether every call and process gives the same tasks."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, get_args

from slimrl.environments.splits import shared_tasks
from slimrl.errors import RolloutError, UserError
from slimrl.io.user_code import call_user_code
from slimrl.types import Split, Task, Taskset
from slimrl_tools.check.subjects import note, ok, problem, verdict
from slimrl_tools.findings import Finding, Level

SPLITS: tuple[Split, ...] = get_args(Split)
HASH_SEEDS = ("1", "2")
LONG_S = 5.0  # seconds for all splits; `tasks` is called several times before a run starts
Tasks = Mapping[Split, Sequence[Task]]


def crash_of_tasks(taskset: Taskset) -> Iterator[Finding]:
    """Yield a problem if the process of a taskset crashes while it makes the tasks."""
    try:
        call_user_code("tasks('train') failed", lambda: taskset.tasks("train"))
    except UserError as error:  # `check_tasks` reports any other error
        if isinstance(error.__cause__, RolloutError):
            yield problem("crash", str(error))


def check_tasks(taskset: Taskset) -> tuple[dict[Split, list[Any]], list[Finding]]:
    """Return the tasks of each split, and the findings on them. If the tasks are invalid, the only finding is a problem
    of the subject `tasks`."""
    began = time.perf_counter()
    found, first = _read_tasks(taskset)
    first_s = time.perf_counter() - began
    if first.level is Level.PROBLEM:
        return found, [first]
    began = time.perf_counter()
    again, second = _read_tasks(taskset)
    again_s = time.perf_counter() - began
    took = f"{first_s:.2f} s for all splits, {again_s:.2f} s at the next call"
    if again_s >= LONG_S:
        time_of_tasks = problem("time of tasks", took)
    elif first_s >= LONG_S:
        time_of_tasks = note("time of tasks", took, "What takes long belongs into `prepare()`, or into a file.")
    else:
        time_of_tasks = ok("time of tasks", took)
    if second.level is Level.PROBLEM:
        repeated = problem("same tasks", f"a second call failed: {second.found}", second.remedy)
    else:
        fault = _difference(found, again)
        repeated = verdict("same tasks", fault and f"a second call of tasks() gives others: {fault}")
    faults = ((task.id, _json_fault(task.data)) for task in chain(*found.values()))
    of_data = next((f"the data of task `{name:.80}` {fault}" for name, fault in faults if fault), "")
    shared = verdict("splits", _shared_fault(found))
    return found, [first, time_of_tasks, verdict("ids", _double_ids(found)), verdict("json", of_data), shared, repeated]


def processes_finding(tasks: Tasks, elsewhere: Callable[[str], Taskset]) -> Finding:
    """Return a finding on whether processes with other Python hash seeds make the same `tasks`."""

    def read(seed: str) -> Tasks:
        taskset = elsewhere(seed)
        return {split: list(taskset.tasks(split)) for split in SPLITS}

    try:
        with ThreadPoolExecutor() as pool:
            others = list(pool.map(read, HASH_SEEDS))
    except UserError as error:
        return problem("other process", str(error), "Make the tasks in every process in the same way.")
    fault = next(filter(None, (_difference(tasks, other) for other in others)), "")
    return verdict("other process", fault and f"another process has other tasks: {fault}")


def _read_tasks(taskset: Taskset) -> tuple[dict[Split, list[Any]], Finding]:
    """Return the tasks of each split, and a finding. The finding is a problem if the taskset's method `tasks` fails or
    returns invalid tasks."""
    found: dict[Split, list[Any]] = {}
    for split in SPLITS:
        remedy = "Give an empty list for a split that there is none of." if split == "validation" else ""
        call = f"tasks({split!r})"
        try:
            found[split] = call_user_code(f"{call} failed", partial(_list, taskset, split))
        except UserError as error:
            return found, problem("tasks", str(error), remedy)
        odd = [task for task in found[split] if not isinstance(task, Task) or not isinstance(task.id, str)]
        if odd:
            text = f"{call} gives what is no `Task` with a text as id: {odd[0]!r:.80}"
            return found, problem("tasks", text, remedy)
    if not found["train"]:
        return found, problem("tasks", "tasks('train') gives none")
    counts = ", ".join(f"{len(tasks)} in {split}" for split, tasks in found.items())
    if not found["test"]:
        return found, note("tasks", f"{counts}: none to evaluate on", "Hold some tasks out, as the split test.")
    return found, ok("tasks", counts)


def _list(taskset: Taskset, split: Split) -> list[Any]:
    return list(taskset.tasks(split))


def _double_ids(tasks: Tasks) -> str:
    """Describe duplicate ids within a split; return an empty text if there are none."""
    for split, found in tasks.items():
        if twice := [name for name, num in Counter(task.id for task in found).items() if num > 1]:
            return f"{len(twice)} ids are used more than once in {split}, such as `{twice[0]:.80}`"
    return ""


def _json_fault(data: object) -> str:
    """Describe how JSON changes the data of a task; return an empty text if JSON keeps them.

    >>> _json_fault({"a": (1, 2.5, None)})
    ''
    >>> _json_fault({"a": {1: "one"}})
    'has keys that are no texts, and JSON makes them some'
    """
    if not isinstance(data, Mapping):
        return f"is a {type(data).__name__}, and no dictionary"
    try:
        again = json.loads(json.dumps(data, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"is no JSON: {error}"
    return "" if again == _with_lists(data) else "has keys that are no texts, and JSON makes them some"


def _with_lists(value: Any) -> Any:
    """Return a copy of nested data with lists in place of tuples."""
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    return [_with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def _shared_fault(tasks: Tasks) -> str:
    """Describe training tasks that another split contains too; return an empty text if there are none."""
    for split, held_out in tasks.items():
        if split != "train" and (shared := shared_tasks(tasks["train"], held_out)):
            here, there = shared[0]
            num = f"{len(shared)} of {len(held_out)} tasks of {split}"
            return f"{num} are training tasks too: {here.id:.60} is {there.id:.60}"
    return ""


def _difference(tasks: Tasks, others: Tasks) -> str:
    """Describe the first difference between tasks that should be the same; return an empty text if there is none."""
    for split in SPLITS:
        mine, theirs = tasks[split], others[split]
        if len(mine) != len(theirs):
            return f"{len(mine)} and {len(theirs)} in {split}"
        for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one.id != other.id:
                return f"task {place} of {split} is `{one.id:.60}` and `{other.id:.60}`"
            if _with_lists(one.data) != _with_lists(other.data):
                return f"task `{one.id:.60}` of {split} holds something else"
    return ""
