"""Plays episodes by given replies."""

import asyncio
from collections.abc import Iterable

from slimrl.environments.find import load_taskset
from slimrl.types import Environment, Message, Turn


def games(name: str, **args):
    return load_taskset(f"textarena:{name}", args)


async def play(episode: Environment, replies: Iterable[str]) -> tuple[list[Message], list[Turn]]:
    """The opening of an episode and its turns, to the end of the replies or of the game."""
    try:
        opening, turns = await episode.start(), []
        for reply in replies:
            turns.append(await episode.step(reply))
            if turns[-1].done:
                break
        return opening, turns
    finally:
        await episode.close()


def played_in(taskset, task, replies: Iterable[str]) -> tuple[list[Message], list[Turn]]:
    return asyncio.run(play(taskset.environment(task), replies))


def played(name: str, *replies: str, **args) -> list[Turn]:
    """The turns of the policy's in the first game of training."""
    taskset = games(name, **args)
    return played_in(taskset, taskset.tasks("train")[0], replies)[1]
