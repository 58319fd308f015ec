"""Reinforcement learning for small language models on multi-turn tasks: the types for a task of your own, and runs.

import slimrl

result = slimrl.rl("examples/reverse_text/rl.toml", max_steps=5)
print(result.held_out["after RL"]["greedy"], result.weights)
"""

import os
from typing import TYPE_CHECKING, Any

# Set this before PyTorch is loaded, because its OpenMP reads the variable only then. By default a waiting OpenMP thread
# spins 300,000 times before it sleeps. If another program runs too, the spinning thread keeps the core from the thread
# that it waits for: a decoding step took thirty times as long (benchmarks/speed/contention.py).
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
    """Import a function for runs, and with it PyTorch, at its first use. `--help` of a command does not need
    PyTorch."""
    if name not in RUNS:
        raise AttributeError(f"module `slimrl` has no attribute `{name}`")
    from slimrl import api

    return vars(api)[name]
