"""A run whose environment draws at random in a worker process resumes bit for bit."""

from pathlib import Path

import pytest

from slimrl.cli import run
from tests.commands.killed import kill_and_resume
from tests.commands.test_rl import reproducible, rl_flags

OWN = """
import random
from slimrl.types import Task, Turn

class Dice:
    def tasks(self, split):
        return [Task(f"{split}/{n}", {"n": n}) for n in range(40)]
    def environment(self, task):
        return Throw(task)

class Throw:
    def __init__(self, task):
        self.task, self.turns = task, 0
    async def start(self):
        return [{"role": "user", "content": f"{self.task.id} {random.randrange(10**6)}"}]
    async def step(self, reply):
        self.turns += 1
        if self.turns == 1:
            return Turn(False, [{"role": "user", "content": str(random.random())}])
        return Turn(True, reward=random.random())
"""


@pytest.mark.nightly
def test_a_killed_run_draws_what_an_uninterrupted_one_does(tiny_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    more = ("--orchestrator.env", f'[{{id="{tmp_path / "own.py"}:Dice"}}]', "--warmup.max_steps", "0")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(rl_flags(tiny_dir, whole, *more)) == 0
    kill_and_resume(rl_flags(tiny_dir, killed, *more), killed / "metrics.jsonl", 4)
    assert reproducible(killed) == reproducible(whole)
    rewards = {metrics["reward/mean"] for _, metrics in reproducible(whole) if "reward/mean" in metrics}
    assert len(rewards) == 5
