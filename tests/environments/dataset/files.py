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

# Replies that earn nothing and break nothing.
HOSTILE = [
    *["", " ", "\x00\x1b[2J", "\ud800", "x" * 100_000, "<answer>" * 5000, "<answer></answer>", "<answer>\x00</answer>"],
    *["</answer><answer>", "<think>" * 1000, "<answer><answer>1</answer></answer>", "[" * 50_000, "‮1‬", "\u200b1"],
    *['{"answer": 1}' * 1000, "answer answer answer", "0\n1\n2\n3", "<answer>0 1 2 3</answer>", "</s><|im_end|>"],
    *["<tool>" * 3000, "<tool>add(1)</tool>" * 500, "<think><answer>5</answer>", "<tool><answer>5</answer></tool>"],
    *[f"<tool>add({text})</tool>" for text in ("[" * 5000, "9" * 9000, "**{}", "*[1]", "float('nan')", "1e999")],
    *["<tool>__import__('os')</tool>", "<tool>add.__call__(1)</tool>", "<tool>add('\\ud800')</tool>"],
    *["<result>\n5\n</result>", "<code>add(1)</code>", "The answer is the correct one."],
]


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
