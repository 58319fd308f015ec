"""The work that all sides of `decode.py` and `prefill.py` do: the prompts, the passes, and how a side reports.

Imported by several interpreters, so it needs nothing but the standard library.
"""

import argparse
import json
import random
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class Case:
    """`batch` prompts of `prompt` tokens each; every one gets its first token and then `new` more."""

    batch: int
    prompt: int
    new: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.prompt}+{self.new}"


def case_of(text: str) -> Case:
    """The inverse of `str(case)`."""
    batch, _, lengths = text.partition("x")
    prompt, _, new = lengths.partition("+")
    return Case(int(batch), int(prompt), int(new))


@dataclass(frozen=True, slots=True)
class Timing:
    """One pass. Prefill ends when every sequence has its first token; `decoded` tokens came after that."""

    prefill_s: float
    decode_s: float
    decoded: int


class Stopwatch:
    """Times an engine that is driven step by step and may give some sequences their first token before others."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._began = self._ended = time.perf_counter()
        self._prefilled: tuple[float, int] | None = None
        self._tokens = 0

    def after_step(self, num_started: int, num_tokens: int) -> None:
        """`num_started` sequences have tokens by now, `num_tokens` together."""
        self._ended, self._tokens = time.perf_counter(), num_tokens
        if self._prefilled is None and num_started == self._batch:
            self._prefilled = self._ended, num_tokens

    def timing(self) -> Timing:
        assert self._prefilled is not None, "a sequence got no token"
        prefilled_at, tokens = self._prefilled
        return Timing(prefilled_at - self._began, self._ended - prefilled_at, self._tokens - tokens)


@dataclass(slots=True)
class CaseReport:
    """The timed passes of one case."""

    case: str
    prefill_s: list[float] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)
    decoded: list[int] = field(default_factory=list)


@dataclass(slots=True)
class GenerateReport:
    """What one process measured."""

    side: str
    versions: dict[str, str]
    settings: str
    num_threads: int
    cases: list[CaseReport] = field(default_factory=list)
    peak_memory_gb: float = 0.0

    def measure(self, cases: list[Case], passes: int, generate: Callable[[Case, int], Timing]) -> None:
        """Run every case once without counting it, then `passes` times; `generate` takes the seed of the prompts."""
        for case in cases:
            generate(case, -1)
            report = CaseReport(str(case))
            for number in range(passes):
                timing = generate(case, number)
                report.prefill_s.append(timing.prefill_s)
                report.decode_s.append(timing.decode_s)
                report.decoded.append(timing.decoded)
            self.cases.append(report)

    def write(self, path: Path, who: int = resource.RUSAGE_SELF) -> None:
        """Write the report. On a GPU the peak memory was filled in before."""
        self.peak_memory_gb = self.peak_memory_gb or resource.getrusage(who).ru_maxrss * 1024 / 1e9
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


def random_prompts(case: Case, vocab_size: int, seed: int) -> Prompts:
    """Prompts that have no beginning in common, and none with those of another seed: nothing can be reused."""
    rng = random.Random(f"{case} {seed}")
    return [[rng.randrange(vocab_size) for _ in range(case.prompt)] for _ in range(case.batch)]


def side_arguments() -> argparse.ArgumentParser:
    """What `decode.py` and `prefill.py` pass to every side."""
    parser = argparse.ArgumentParser(description="One side of decode.py or prefill.py; start one of those instead.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--cases", type=case_of, nargs="+", required=True)
    parser.add_argument("--passes", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    return parser
