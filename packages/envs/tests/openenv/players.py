"""What the tests of OpenEnv servers share: where its Python is, and episodes with given replies."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from slimrl.types import Task
from slimrl_envs.openenv.taskset import OpenEnv

PYTHON = os.environ.get("TEST_OPENENV_PYTHON", "")
needs_openenv = pytest.mark.skipif(
    not PYTHON,
    reason="TEST_OPENENV_PYTHON names no Python with openenv==0.10.0, whose fastmcp contradicts other packages here",
)


def own(monkeypatch, name, **args):
    """A taskset whose server is started from `served.py` by OpenEnv's Python."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return OpenEnv(f"served:{name}", python=PYTHON, **args)


async def play(taskset, replies, task=None):
    """The opening messages, and the turns of an episode with these replies, up to its end."""
    if taskset._description is None:
        await asyncio.to_thread(taskset.prepare)
    episode = taskset.environment(task or taskset.tasks("train")[0])
    try:
        opening = await episode.start()
        turns = []
        for reply in replies:
            turns.append(await episode.step(reply))
            if turns[-1].done:
                break
        return opening, turns
    finally:
        await episode.close()


def numbered(number):
    """A task of `Guess` with the number to guess."""
    return Task(f"number/{number}", {"number": number})


def children_of(pid):
    """The processes whose parent is `pid`."""
    done = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
