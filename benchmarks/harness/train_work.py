"""The work that all sides of `train_step.py` do: batches of made-up sequences, a loss, and how a side reports.

The loss is -A log p(token), summed over the trained tokens and divided by their number; A is -1 and +1 by turns.
Imported by several interpreters, so it needs nothing but the standard library.
"""

import argparse
import json
import random
import resource
from dataclasses import asdict, dataclass, field
from pathlib import Path

LEARNING_RATE = 1e-6
MAX_GRAD_NORM = 1.0
WARM_UP_STEPS = 1
NUM_EQUAL, EQUAL = 8, 256
RAGGED = (64, 96, 128, 176, 240, 320, 448, 576)  # mean 256


@dataclass(frozen=True, slots=True)
class Sequence:
    """Token ids of which those from `prompt` on are trained."""

    token_ids: tuple[int, ...]
    prompt: int
    advantage: float

    @property
    def num_trained(self) -> int:
        return len(self.token_ids) - self.prompt


def batch_of(work: str, vocab_size: int, group: "GroupSize") -> list[Sequence]:
    """The sequences of `equal` (8 of 256 tokens), `ragged` (8 of 64 to 576) or `group` (completions of one prompt)."""
    rng = random.Random(work)
    if work == "group":
        prompt = _tokens(rng, vocab_size, group.prompt)
        token_ids = [prompt + _tokens(rng, vocab_size, group.completion) for _ in range(group.rollouts)]
        first_trained = group.prompt
    else:
        lengths = [EQUAL] * NUM_EQUAL if work == "equal" else RAGGED
        token_ids = [_tokens(rng, vocab_size, length) for length in lengths]
        first_trained = 1
    return [Sequence(ids, first_trained, 1.0 if number % 2 else -1.0) for number, ids in enumerate(token_ids)]


def _tokens(rng: random.Random, vocab_size: int, num: int) -> tuple[int, ...]:
    return tuple(rng.randrange(vocab_size) for _ in range(num))


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Rollouts on one shared prompt, and their lengths in tokens."""

    rollouts: int = 16
    prompt: int = 500
    completion: int = 100

    def __str__(self) -> str:
        return f"{self.rollouts}x{self.prompt}+{self.completion}"


def group_size(text: str) -> GroupSize:
    """The inverse of `str(group)`."""
    rollouts, _, lengths = text.partition("x")
    prompt, _, completion = lengths.partition("+")
    return GroupSize(int(rollouts), int(prompt), int(completion))


@dataclass(slots=True)
class TrainReport:
    """What one process measured. `loss` and `grad_norm` are the first step's: they show that the work was equal."""

    side: str
    versions: dict[str, str]
    settings: str
    num_threads: int
    loss: float = 0.0
    grad_norm: float = 0.0
    step_s: list[float] = field(default_factory=list)
    peak_memory_gb: float = 0.0

    def add_step(self, step: int, seconds: float, loss: float, grad_norm: float) -> None:
        """Keep the time of a step unless it is one of the warm-up."""
        if step == 0:
            self.loss, self.grad_norm = loss, grad_norm
        if step >= WARM_UP_STEPS:
            self.step_s.append(seconds)

    def write(self, path: Path) -> None:
        self.peak_memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def side_arguments() -> argparse.ArgumentParser:
    """What `train_step.py` passes to every side."""
    parser = argparse.ArgumentParser(description="One side of train_step.py; start that instead.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--work", choices=["equal", "ragged", "group"], required=True)
    parser.add_argument("--group", type=group_size, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--gradient", type=Path, help="write the gradient of the first step here (safetensors)")
    parser.add_argument("--output", type=Path, required=True)
    return parser
