"""Finds an environment by its `id`. Users write environments, so the returned values are checked."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from slimrl.environments.base import complete, is_default
from slimrl.errors import UserError, nearest
from slimrl.io.user_code import call_user_code, check_call, load_named
from slimrl.plugins import ENVIRONMENTS, OURS, is_ours, load, names
from slimrl.types import Rollout, Split, Task, Taskset

NOTEBOOK = "__main__"  # the module of code in a notebook or a script

# The packages of slimrl and its own plug-ins.
PACKAGES = {"slimrl", *(name.replace("-", "_") for group in OURS.values() for name in group.values())}

# Installed environments that call the user's functions, tools or programs.
CALLS_USER_CODE = ("dataset",)

# Environments whose episodes end with the first reply, if they have no tools.
ONE_TURN = ("code", "dataset", "reasoning-gym", "reverse-text")


def has_one_turn(env_id: str, args: Mapping[str, Any]) -> bool:
    """Return True if the environment's id and `args` imply that an episode is over after the first reply."""
    return env_id.partition(":")[0].replace("_", "-") in ONE_TURN and not args.get("tools")


def load_taskset(env_id: str, args: Mapping[str, Any]) -> Taskset:
    """Return the taskset with this id and these args.

    The id has one of four forms: the name of an installed environment (`slimrl.environments`; `-` and `_` are
    equivalent), `SCHEME:NAME` for an environment of another package, `path/to/file.py:ClassName`, or
    `package.module:ClassName`. Raise UserError if the taskset does not exist or does not accept the args.
    """
    constructor = find_constructor(env_id, args)
    given = ", ".join(f"{name} = {value!r:.40}" for name, value in args.items()) or "no args"
    taskset = call_user_code(f"environment `{env_id}` failed with {given}", lambda: constructor(**args))
    missing = [
        name
        for name in ("tasks", "environment")
        if not callable(getattr(taskset, name, None)) or is_default(taskset, name)
    ]
    if missing:
        raise UserError(
            f"environment `{env_id}`: {type(taskset).__name__} lacks {' and '.join(f'`{m}()`' for m in missing)}; see "
            "`Taskset` in slimrl/types.py for what it must have."
        )
    return complete(taskset)


def find_constructor(env_id: str, args: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the callable that creates the taskset with this id, usually a class, without calling it. Raise UserError
    as `load_taskset` does."""
    constructor = _find(env_id)
    if not callable(constructor):
        raise UserError(
            f"environment `{env_id}` is not a class, but the {type(constructor).__name__} {constructor!r:.80}."
        )
    check_call(constructor, args, f"environment `{env_id}`")
    found: Callable[..., Any] = constructor
    return found


def is_builtin(env_id: str) -> bool:
    """Return True if all code of an environment is part of slimrl or its plug-ins."""
    if name := _name_of(env_id):
        return not name.endswith(":") and name not in CALLS_USER_CODE and is_ours(ENVIRONMENTS, name)
    module = env_id.rpartition(":")[0]
    return module.partition(".")[0] in PACKAGES and not module.endswith(".py")


def tasks_of(taskset: Taskset, split: Split) -> list[Task]:
    """Return the taskset's tasks in a split. Raise UserError if the taskset fails, returns anything but `Task`s, or
    uses an id twice."""
    name = f"{taskset.class_name}.tasks({split!r})"
    tasks: list[object] = call_user_code(f"{name} failed", lambda: list(taskset.tasks(split)))
    seen: set[str] = set()
    for number, task in enumerate(tasks):
        if not isinstance(task, Task) or not isinstance(task.id, str):
            raise UserError(
                f"{name} must give `slimrl.types.Task`s with a text as id, but number {number} is {task!r:.80}"
            )
        _check_data(task, name)
        if task.id in seen:
            raise UserError(f"{name} gives two tasks with the id `{task.id}`; an id must be unique within its split.")
        seen.add(task.id)
    return cast(list[Task], tasks)


def _check_data(task: Task, name: str) -> None:
    """Raise UserError unless JSON can store a task's data unchanged. Sets and numeric keys are refused."""
    if not isinstance(task.data, Mapping):
        raise UserError(f"{name}: the data of task `{task.id}` must be a dictionary, not {type(task.data).__name__}.")
    try:
        again = json.loads(json.dumps(task.data))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{name}: the data of task `{task.id}` must be JSON: {error}.") from None
    if set(again) != set(task.data):
        keys = sorted(task.data, key=str)
        raise UserError(f"{name}: the data of task `{task.id}` must be JSON, whose keys are texts, not {keys}.")


def prepare_taskset(taskset: Taskset) -> None:
    """Run the taskset's preparation before its first task. Raise UserError if it fails."""
    call_user_code(f"{taskset.class_name}.prepare() failed", taskset.prepare)


def failure_kind_of(taskset: Taskset, rollout: Rollout) -> str | None:
    """Return the taskset's name for the kind of failure of an episode; None if the episode did not fail. If the
    taskset's method raises an error, return the error's text."""
    try:
        kind: object = call_user_code("failure_kind() failed", lambda: taskset.failure_kind(rollout))
    except UserError as error:
        return str(error)
    return kind if kind is None or isinstance(kind, str) else f"failure_kind() gave a {type(kind).__name__}"


def environment_names() -> list[str]:
    """Return the names of the installed environments, without the schemes."""
    return [name for name in names(ENVIRONMENTS) if not name.endswith(":")]


def _name_of(env_id: str) -> str:
    """Return the name in `env_id` if it names an environment that is installed or belongs to slimrl. Return `SCHEME:`
    for an environment of another package, and an empty text for a location in Python code."""
    scheme, colon, _ = env_id.partition(":")
    given = f"{scheme}{colon}"
    known = {*names(ENVIRONMENTS), *OURS[ENVIRONMENTS]}
    return next((name for name in (given, given.replace("_", "-")) if name in known), "")


def check_name(env_id: str) -> None:
    """Raise UserError if an id is neither an environment's name nor a location in Python code."""
    module_name, colon, _ = env_id.rpartition(":")
    if not _name_of(env_id) and (not colon or not module_name):
        schemes = [f"`{name}NAME`" for name in names(ENVIRONMENTS) if name.endswith(":")]
        others = f", one of another package as {', '.join(schemes)}" if schemes else ""
        raise UserError(
            f"there is no environment `{env_id}`.{nearest(env_id, environment_names())} Your own is named as "
            f"`path/to/file.py:ClassName` or `package.module:ClassName`{others}."
        )


def _find(env_id: str) -> Any:
    if name := _name_of(env_id):
        found = load(ENVIRONMENTS, name, "environment")
        # The class of a scheme takes the name as its first argument, then the args.
        return functools.partial(found, env_id.partition(":")[2]) if name.endswith(":") else found
    check_name(env_id)
    module_name, _, class_name = env_id.rpartition(":")
    if module_name == NOTEBOOK and class_name not in vars(sys.modules[NOTEBOOK]):
        raise UserError(
            f"environment `{env_id}` was written in a notebook or a script, and only there it can be found: go on "
            "there with `resume=True` or `slimrl.evaluate`, or move the class to a file and name it `path/to/file.py:"
            f"{class_name}`."
        )
    return load_named(env_id, "environment", {}, inspect.isclass)
