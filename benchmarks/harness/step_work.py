"""The work of one RL step that both sides of `rl_step.py` do: prompts, reward, numbers; and how a side reports.

Imported by two interpreters, so it needs nothing but the standard library.
"""

import argparse
import json
import resource
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROLLOUTS_PER_PROMPT = 8
NEW_TOKENS = 64
LEARNING_RATE = 1e-6
MAX_GRAD_NORM = 1.0
WARM_UP_STEPS = 1

# With SmolLM2's chat template, which adds a system message, each is about 45 tokens.
PROMPTS = (
    "Name three things that a river carries from the mountains to the sea.",
    "What does a baker in a small town do before the sun comes up?",
    "Why do the leaves of some trees turn red in autumn, and not of others?",
    "Explain to a child of six how a bridge can carry a heavy train.",
)
NUM_ROLLOUTS = len(PROMPTS) * ROLLOUTS_PER_PROMPT


def reward(completion: str) -> float:
    """In [0, 1] and all but unique to the text, so that the rewards of every group differ."""
    return sum(completion.encode()) % 997 / 996


@dataclass(slots=True)
class SideReport:
    """What one process measured: seconds of each timed step, and facts that show the work was equal."""

    side: str
    versions: dict[str, str]
    settings: str
    prompt_tokens: list[int]
    num_threads: int
    step_s: list[float] = field(default_factory=list)
    rollout_s: list[float] = field(default_factory=list)
    train_s: list[float] = field(default_factory=list)
    peak_memory_gb: float = 0.0

    def add_step(self, step: int, began: float, sampled: float, ended: float) -> None:
        """Keep the times of a step unless it is one of the warm-up."""
        if step >= WARM_UP_STEPS:
            self.step_s.append(ended - began)
            self.rollout_s.append(sampled - began)
            self.train_s.append(ended - sampled)

    def write(self, path: Path) -> None:
        if not self.peak_memory_gb:  # on a GPU its own was filled in
            self.peak_memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def side_arguments() -> argparse.ArgumentParser:
    """What `rl_step.py` passes to either side."""
    parser = argparse.ArgumentParser(description="One side of rl_step.py; start that instead.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    return parser
