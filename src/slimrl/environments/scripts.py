"""Conversations with somebody who plays by a script: an expert, one who plays at random, or another by name."""

from collections.abc import Callable
from typing import Any, cast

from slimrl.environments.base import Cast, Expert, RandomPlayer, Taskset, is_message
from slimrl.environments.find import _called
from slimrl.errors import UserError
from slimrl.types import Message, Task


def demonstration_of(taskset: Taskset, task: Task) -> list[Message]:
    """The expert's conversation on a task. Raises UserError if the taskset has no expert, or it fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, Expert):
        raise UserError(
            f"{name} has no `demonstrate()`, so nobody can show how its tasks are done. Add the method, or train on a "
            "file: `--data.type file --data.path chats.jsonl`."
        )
    return _conversation(f"{name}.demonstrate({task.id})", lambda: list(taskset.demonstrate(task)))


def random_conversation(taskset: Taskset, task: Task, seed: int) -> list[Message]:
    """A conversation on a task with somebody who plays at random. Raises UserError if the taskset has no such player,
    or it fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, RandomPlayer):
        raise UserError(f"{name} has no `play_at_random()`: take `random` from the baselines, or add the method.")
    return _conversation(f"{name}.play_at_random({task.id})", lambda: list(taskset.play_at_random(task, seed)))


def script_conversation(taskset: Taskset, script: str, task: Task, seed: int) -> list[Message]:
    """A conversation on a task with one of the taskset's own scripts. Raises UserError if it has no such script, or it
    fails."""
    name = type(taskset).__name__
    if not isinstance(taskset, Cast):
        raise UserError(f"{name} has no scripts: take `script:{script}` from the baselines, or add `play_as()`.")
    return _conversation(f"{name}.play_as({script!r}, {task.id})", lambda: list(taskset.play_as(script, task, seed)))


def _conversation(name: str, call: Callable[[], list[Any]]) -> list[Message]:
    messages: list[object] = _called(name, call)
    for message in messages:
        if not is_message(message):
            raise UserError(f"{name}: a message needs a role and a text as content, not {message!r:.200}")
    return cast(list[Message], messages)
