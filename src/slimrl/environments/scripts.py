"""Conversations in which a script of the taskset speaks as the assistant: an expert, a random player, or another.

Tasksets are other people's code: whatever a script does wrong is a `UserError` that names it.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence

from slimrl.environments.find import call_user_code
from slimrl.environments.plain import plain_messages
from slimrl.errors import UserError, nearest
from slimrl.types import Environment, Message, Script, Task, Taskset, Turn

EXPERT = "expert"
# The commands that need an expert, each with what it can do without one.
INSTEAD = {
    "rl": "leave out the warm-up: `--warmup.max_steps 0`",
    "sft": "train on a file: `--data.type file --data.path chats.jsonl`",
}


def play_script(taskset: Taskset, script: str, task: Task, seed: int) -> list[Message]:
    """The conversation of a script on a task. Raises UserError if the taskset has no script of this name, or the script
    fails, or it gives something that is no conversation."""
    scripts, name = taskset.scripts, taskset.class_name
    if script not in scripts:
        raise UserError(_explain_missing_script(name, script, scripts))
    call = f"{name}.scripts[{script!r}]({task.id})"
    own = copy.deepcopy(task)
    messages: list[Message] = call_user_code(f"{call} failed", lambda: plain_messages(scripts[script](own, seed)))
    return messages


def converse(episode: Environment, reply: Callable[[], str]) -> list[Message]:
    """The conversation of an episode whose replies `reply` gives, one after the other: what a script returns."""

    async def play() -> list[Message]:
        messages, turn = [*await episode.start()], Turn(done=False)
        while not turn.done:
            messages += [*turn.messages, {"role": "assistant", "content": (text := reply())}]
            turn = await episode.step(text)
        return messages

    return asyncio.run(play())


def demonstrate(taskset: Taskset, task: Task) -> list[Message]:
    """The conversation of the taskset's expert on a task. Raises UserError if there is no expert, or it fails."""
    return play_script(taskset, EXPERT, task, seed=0)


def check_experts(tasksets: Sequence[Taskset], command: str) -> None:
    """Raises UserError if a taskset has no expert, with what the command can do without one."""
    for taskset in tasksets:
        if EXPERT not in taskset.scripts:
            raise UserError(f"{_explain_missing_script(taskset.class_name, EXPERT, {})} Or {INSTEAD[command]}.")


def _explain_missing_script(name: str, script: str, scripts: Mapping[str, Script]) -> str:
    if script == EXPERT:
        return (
            f'{name} has no script "expert", so nobody can show how its tasks are done. Add it, as in '
            '`scripts = {"expert": ...}`.'
        )
    known = nearest(script, scripts) if scripts else " It has none."
    return f"{name} has no script `{script}`.{known} Take it from the baselines, or add it to the taskset's `scripts`."
