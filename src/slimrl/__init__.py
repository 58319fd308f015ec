"""Reinforcement learning for small language models on multi-turn tasks: what a task of your own is made of, and runs.

import slimrl

result = slimrl.rl("examples/reverse_text/rl.toml", max_steps=5)
print(result.held_out["after RL"]["greedy"], result.weights)
"""

import os
from typing import TYPE_CHECKING, Any

# Before PyTorch is loaded, whose OpenMP reads it then. By default a thread that waits for others of its team spins
# 300,000 times before it sleeps, and so keeps a core from the one it waits for if another program runs too: a decoding
# step took thirty times as long (benchmarks/speed/contention.py).
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"

from slimrl.errors import UserError
from slimrl.types import Environment, Message, Task, Taskset, Turn

if TYPE_CHECKING:
    from slimrl.api import EvaluationResult, TrainingResult, evaluate, rl, sft

__all__ = [
    "Environment",
    "EvaluationResult",
    "Message",
    "Task",
    "Taskset",
    "TrainingResult",
    "Turn",
    "UserError",
    "evaluate",
    "rl",
    "sft",
]

RUNS = ("EvaluationResult", "TrainingResult", "evaluate", "rl", "sft")


def __getattr__(name: str) -> Any:
    """Loads what runs things when it is first asked for: it needs PyTorch, and the commands' `--help` does not."""
    if name not in RUNS:
        raise AttributeError(f"module `slimrl` has no attribute `{name}`")
    from slimrl import api

    return vars(api)[name]
