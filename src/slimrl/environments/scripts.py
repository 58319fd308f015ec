"""Plays conversations in which a script of the taskset is the assistant: an expert, a random player, or another script.

Users write tasksets, so every error of a script becomes a `UserError` that names the script.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping

from slimrl.environments.base import Closing
from slimrl.environments.plain import plain_messages
from slimrl.errors import UserError, nearest
from slimrl.io.user_code import call_user_code
from slimrl.types import Environment, Message, Script, Task, Taskset, Turn

EXPERT = "expert"


def play_script(taskset: Taskset, script: str, task: Task, seed: int) -> list[Message]:
    """Return the conversation of a script on a task. Raise UserError if the script is missing, fails, or does not
    return a conversation."""
    scripts, name = taskset.scripts, taskset.class_name
    if script not in scripts:
        raise UserError(explain_missing_script(name, script, scripts))
    call = f"{name}.scripts[{script!r}]({task.id})"
    own = copy.deepcopy(task)
    messages: list[Message] = call_user_code(f"{call} failed", lambda: plain_messages(scripts[script](own, seed)))
    return messages


def converse(episode: Environment, reply: Callable[[], str | None]) -> list[Message]:
    """Play an episode and return its conversation. `reply` is called in every turn and returns the assistant's reply,
    or None to stop before the episode ends."""

    async def play() -> list[Message]:
        messages, turn = [*await episode.start()], Turn(done=False)
        try:
            while not turn.done and (text := reply()) is not None:
                messages += [*turn.messages, {"role": "assistant", "content": text}]
                turn = await episode.step(text)
            return messages
        finally:
            if isinstance(episode, Closing):
                await episode.close()

    return asyncio.run(play())


def demonstrate(taskset: Taskset, task: Task) -> list[Message]:
    """Return the conversation of the taskset's expert on a task. Raise UserError if the expert does not exist or
    fails."""
    return play_script(taskset, EXPERT, task, seed=0)


def explain_missing_script(name: str, script: str, scripts: Mapping[str, Script]) -> str:
    """Return the error message for a missing `script`. `name` is the taskset's class, and `scripts` are its scripts."""
    if script == EXPERT:
        return (
            f'{name} has no script "expert", so nobody can show how its tasks are done. Add it, as in '
            '`scripts = {"expert": ...}`.'
        )
    known = nearest(script, scripts) if scripts else " It has none."
    return f"{name} has no script `{script}`.{known} Take it from the baselines, or add it to the taskset's `scripts`."
