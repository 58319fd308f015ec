"""Episodes with given replies, on servers of OpenEnv."""

import asyncio

from packages.envs.tests.episodes import play as play_episode
from slimrl.types import Task
from slimrl_envs.openenv.taskset import OpenEnv


def prepared(base, **args):
    taskset = OpenEnv(base, **args)
    taskset.prepare()
    return taskset


async def play(taskset, replies, number=None):
    """The opening messages, and the turns of an episode with these replies, up to its end; in `Guess` of a number."""
    task = taskset.tasks("train")[0] if number is None else Task(f"number/{number}", {"number": number})
    return await play_episode(taskset.environment(task), replies)


def played(taskset, *replies, number=None):
    return asyncio.run(play(taskset, replies, number))


def played_at(base, *replies, **args):
    """The turns of an episode with a server that runs already."""
    return played(prepared(base, **args), *replies)[1]
