"""Plays episodes by given replies, for the tests of all environments."""

import asyncio
from collections.abc import Iterable, Sequence

from slimrl.environments.base import Closing
from slimrl.environments.find import load_taskset
from slimrl.types import Environment, Message, Task, Taskset, Turn


async def play(episode: Environment, replies: Iterable[str]) -> tuple[list[Message], list[Turn]]:
    """Return the opening of an episode and its turns, up to the end of the replies or of the game."""
    try:
        opening, turns = await episode.start(), []
        for reply in replies:
            turns.append(await episode.step(reply))
            if turns[-1].done:
                break
        return opening, turns
    finally:
        if isinstance(episode, Closing):
            await episode.close()


def opening_of(taskset: Taskset, task: Task) -> list[Message]:
    return asyncio.run(play(taskset.environment(task), []))[0]


def turns_of(taskset: Taskset, task: Task, replies: Iterable[str]) -> list[Turn]:
    return asyncio.run(play(taskset.environment(task), replies))[1]


def turns_in(env_id: str, *replies: str, **args: object) -> list[Turn]:
    """Return the turns of an episode on the first task of training."""
    taskset = load_taskset(env_id, args)
    return turns_of(taskset, taskset.tasks("train")[0], replies)


def replies_of(conversation: Sequence[Message]) -> list[str]:
    return [message["content"] for message in conversation if message["role"] == "assistant"]


def reward_of(turns: Iterable[Turn]) -> float:
    return sum(turn.reward for turn in turns)
