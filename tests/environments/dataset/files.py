"""Files of questions and of reward functions for tests, and one reply to a question."""

import asyncio
import json

from slimrl.environments.find import load_taskset
from slimrl.rollout.answers import close_episode
from slimrl.types import Turn

SUMS = [{"question": f"What is {a} + 1?", "answer": a + 1} for a in range(40)]

TOOLS = '''
from typing import Literal

def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b

async def join(words: list[str], way: Literal["up", "down"]) -> str:
    """Joins words."""
    return "-".join(words if way == "up" else words[::-1])

def breaks(text):
    raise KeyError(text)

class Odd: pass

def odd(a: Odd):
    return a
'''


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def made(tmp_path, rows=SUMS, **args):
    return load_taskset("dataset", {"path": str(write_rows(tmp_path / "rows.jsonl", rows)), **args})


def functions(tmp_path, text):
    path = tmp_path / "rewards.py"
    path.write_text(text, encoding="utf-8")
    return path


def answered(taskset, *replies, number=0) -> Turn:
    async def play() -> Turn:
        episode = taskset.environment(taskset.tasks("train")[number])
        try:
            await episode.start()
            for reply in replies:
                turn = await episode.step(reply)
            return turn
        finally:
            await close_episode(episode)

    return asyncio.run(play())


def opened(taskset):
    return asyncio.run(taskset.environment(taskset.tasks("train")[0]).start())
