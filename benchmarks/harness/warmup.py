"""The supervised warm-up on reverse_text that every run of a comparison begins from, made once."""

import argparse
from pathlib import Path

from benchmarks.harness.runs import Job, finish, flags

WARMUP_STEPS, WARMUP_LR = 3, 1e-4  # those of the recipe


def warm_up(arguments: argparse.Namespace) -> Path:
    """The weights that every side begins from."""
    run: Path = arguments.runs / "warmup"
    weights = f"weights/step_{WARMUP_STEPS}"
    settings = {
        "max_steps": WARMUP_STEPS,
        "seq_len": 128,
        "batch_size": 32,
        "output_dir": run,
        "model.name": arguments.model,
        "model.dtype": arguments.dtype,
        "data.type": "expert",
        "data.env.id": "reverse-text",
        "data.env.args": '{style = "code", min_length = 4, max_length = 10}',
        "optim.lr": WARMUP_LR,
        "schedule.warmup_steps": 2,
    }
    finish(Job("sft", flags(settings), run, result=weights))
    return run / weights
