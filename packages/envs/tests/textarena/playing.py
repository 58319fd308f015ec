"""Plays episodes by given replies."""

import asyncio
from collections.abc import Iterable

from packages.envs.tests.episodes import play
from slimrl.environments.find import load_taskset
from slimrl.types import Message, Turn


def games(name: str, **args):
    return load_taskset(f"textarena:{name}", args)


def played_in(taskset, task, replies: Iterable[str]) -> tuple[list[Message], list[Turn]]:
    return asyncio.run(play(taskset.environment(task), replies))


def played(name: str, *replies: str, **args) -> list[Turn]:
    """The turns of the policy's in the first game of training."""
    taskset = games(name, **args)
    return played_in(taskset, taskset.tasks("train")[0], replies)[1]
