"""Conversations in which a script of the taskset speaks as the assistant: an expert, a random player, or another.

Tasksets are other people's code: whatever a script does wrong is a `UserError` that names it.
"""

import copy
import functools
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from slimrl.environments.base import Script, Scripted, Taskset
from slimrl.environments.find import call_user_code
from slimrl.environments.plain import plain_messages
from slimrl.errors import UserError, nearest
from slimrl.io.cache import say
from slimrl.types import Message, Task

EXPERT = "expert"


@runtime_checkable
class _Demonstrating(Protocol):
    """A taskset as it was written before `scripts`."""

    def demonstrate(self, task: Task) -> list[Message]:
        """The conversation of an expert."""


def find_scripts(taskset: Taskset) -> Mapping[str, Script]:
    """The scripts of a taskset by name; none, if it has none. A `demonstrate` counts as its expert, with a note."""
    if isinstance(taskset, Scripted):
        return taskset.scripts
    if isinstance(taskset, _Demonstrating):
        demonstrate = taskset.demonstrate
        _note_old_expert(type(taskset).__name__)
        return {EXPERT: lambda task, seed: demonstrate(task)}
    return {}


def play_script(taskset: Taskset, script: str, task: Task, seed: int) -> list[Message]:
    """The conversation of a script on a task. Raises UserError if the taskset has no script of this name, or the script
    fails, or it gives something that is no conversation."""
    scripts, name = find_scripts(taskset), type(taskset).__name__
    if script not in scripts:
        raise UserError(_explain_missing_script(name, script, scripts))
    call = f"{name}.scripts[{script!r}]({task.id})"
    own = copy.deepcopy(task)
    messages: list[Message] = call_user_code(f"{call} failed", lambda: plain_messages(scripts[script](own, seed)))
    return messages


def demonstrate(taskset: Taskset, task: Task) -> list[Message]:
    """The conversation of the taskset's expert on a task. Raises UserError if there is no expert, or it fails."""
    return play_script(taskset, EXPERT, task, seed=0)


def _explain_missing_script(name: str, script: str, scripts: Mapping[str, Script]) -> str:
    if script == EXPERT:
        return (
            f'{name} has no script "expert", so nobody can show how its tasks are done. Add it, as in '
            '`scripts = {"expert": ...}`, or train on a file: `--data.type file --data.path chats.jsonl`.'
        )
    known = nearest(script, scripts) if scripts else " It has none."
    return f"{name} has no script `{script}`.{known} Take it from the baselines, or add it to the taskset's `scripts`."


@functools.cache
def _note_old_expert(name: str) -> None:
    say(f"{name}.demonstrate(task) is read as its expert: better write `scripts`, which maps `expert` to it.")
