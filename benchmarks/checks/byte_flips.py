"""Damages the files of a killed run, resumes it, and sorts what comes of it: noticed, harmless, or silent.

`uv run python -m benchmarks.checks.byte_flips`: a tiny random model on reverse-text, with a warm-up, killed with
SIGKILL between two checkpoints. Each time one file of a fresh copy is damaged, every file in turn, and the run is
resumed. *Noticed* is what a line of the output names, *harmless* what leaves weights, metrics and held-out results
equal to the last bit; anything else is silent, and the exit status is 1. Writes `benchmarks/results/byte_flips.json`.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import machine_facts
from slimrl.cli import run
from slimrl.errors import UserError
from slimrl.monitor.sinks import read_metrics
from tests.reproducible import is_reproducible
from tests.tiny import tiny_model_dir

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "byte_flips.json"
STEPS = 6
SETTINGS = {
    "max_steps": STEPS,
    "seq_len": 160,
    "model.dtype": "float32",
    "model.num_threads": 1,
    "orchestrator.env": '[{id="reverse-text"}]',
    "orchestrator.batch_size": 8,
    "orchestrator.rollouts_per_example": 4,
    "orchestrator.sampling.max_tokens": 4,
    "trainer.loss.type": "reinforce",
    "trainer.micro_batch_tokens": 256,
    "trainer.optim.lr": 0.01,
    "warmup.max_steps": 2,
    "warmup.batch_size": 4,
    "eval.num_examples": 4,
    "eval.interval_steps": 2,
    "ckpt.interval_steps": 2,
}
Damage = Callable[[Path, random.Random], None]


def flip(path: Path, rng: random.Random, num_bytes: int = 1) -> None:
    """Changes some bytes in a row to others."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(max(1, len(content) - num_bytes + 1))
    for place in range(start, min(start + num_bytes, len(content))):
        content[place] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def flip_64(path: Path, rng: random.Random) -> None:
    """Changes 64 bytes in a row."""
    flip(path, rng, 64)


def zero(path: Path, rng: random.Random) -> None:
    """Fills up to 512 bytes with zeros, as a disk does that lost a block."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(max(1, len(content) - 511))
    content[start : start + 512] = bytes(len(content[start : start + 512]))
    path.write_bytes(content)


def truncate(path: Path, rng: random.Random) -> None:
    """Cuts the file off."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def swap(path: Path, rng: random.Random) -> None:
    """Changes places with the file of the same name of another step; without one, puts another file in its place."""
    twins = [twin for twin in path.parent.parent.glob(f"step_*/{path.name}") if twin != path]
    others = [other for other in path.parent.iterdir() if other.is_file() and other != path]
    other = rng.choice(sorted(twins) or sorted(others) or [path])
    mine, its = path.read_bytes(), other.read_bytes()
    path.write_bytes(its)
    other.write_bytes(mine)


KINDS: dict[str, Damage] = {"one byte": flip, "64 bytes": flip_64, "zeros": zero, "cut off": truncate, "swapped": swap}


def flags(model: Path, output_dir: Path) -> list[str]:
    """The arguments of the run."""
    settings = {**SETTINGS, "model.name": model, "output_dir": output_dir}
    return ["rl", *(text for key, value in settings.items() for text in (f"--{key}", str(value)))]


def start_and_kill(model: Path, output_dir: Path) -> None:
    """Starts the run and kills it in the middle of its fifth step, a step after its second checkpoint."""
    command = [sys.executable, "-m", "slimrl", *flags(model, output_dir)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = output_dir / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < STEPS - 1:
        if process.poll() is not None:
            raise SystemExit("the run ended before it could be killed; run this again")
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def run_here(arguments: list[str]) -> tuple[int, list[str]]:
    """Runs a command in this process. Returns its exit status and the lines of its output, a traceback included."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = run(arguments)
        except BaseException as error:
            status = 99
            print(f"TRACEBACK {type(error).__name__}: {error}")
    return status, [" ".join(line.split()) for line in output.getvalue().splitlines() if line.strip()]


def result_of(output_dir: Path) -> dict[str, Any]:
    """All that a run is for: final weights, metrics, held-out results and closing table."""
    weights = output_dir / "weights" / f"step_{STEPS}"
    files = [path for path in sorted(weights.iterdir()) if path.is_file() and path.suffix != ".png"]  # plots show times
    found: dict[str, Any] = {path.name: sha256(path) for path in files if path.suffix != ".md"}
    for path in weights.glob("*.md"):  # the model card, whose table has the duration
        found[path.name] = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("| time")]
    for directory in (output_dir, output_dir / "warmup"):
        found[directory.name] = [
            (step, {name: value for name, value in metrics.items() if is_reproducible(name)})
            for step, metrics in read_metrics(directory / "metrics.jsonl")
        ]
    for path in sorted((output_dir / "held_out").glob("*.json")):
        found[path.name] = json.loads(path.read_text())["held_out"]
    summary = json.loads((output_dir / "summary.json").read_text())
    return found | {key: summary[key] for key in ("stages", "tokens_sampled", "tokens_trained", "weights")}


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Attack:
    """A killed run, its undamaged end, and what comes of damage to copies of it."""

    def __init__(self, directory: Path, own_settings: bool) -> None:
        self.model = tiny_model_dir(directory / "model", "llama")
        self.killed, self.copy = directory / "killed" / "run", directory / "copy" / "run"
        start_and_kill(self.model, self.copy)
        shutil.copytree(self.copy, self.killed, symlinks=True)
        # Damage to the run's own file of settings then cannot be told by what the command line says.
        self.own_settings = own_settings
        status, self.lines = self.resume()
        assert status == 0, self.lines
        self.result = result_of(self.copy)
        self.files = sorted(
            path.relative_to(self.killed)
            for path in self.killed.rglob("*")
            if path.is_file() and path.stat().st_size and not any(parent.is_symlink() for parent in path.parents)
        )

    def resume(self) -> tuple[int, list[str]]:
        """Resumes the run in the copy."""
        own = ["rl", "@", str(self.copy / "config.toml")]
        return run_here([*(own if self.own_settings else flags(self.model, self.copy)), "--resume"])

    def outcome(self, name: Path, damage: Damage, rng: random.Random) -> tuple[str, str]:
        """What comes of one damage: the class, and the line that names it."""
        shutil.rmtree(self.copy)
        shutil.copytree(self.killed, self.copy, symlinks=True)
        damage(self.copy / name, rng)
        if sha256(self.copy / name) == sha256(self.killed / name):
            return "unchanged", ""
        status, lines = self.resume()
        new = [line for line in lines if line not in self.lines]
        if traceback := [line for line in new if "Traceback" in line or line.startswith("TRACEBACK")]:
            return "traceback", " ".join(traceback)
        # A line that names the directory is enough: where two files of it changed places, the others do not agree.
        names = (name.name, f"{name.parent.name} is damaged", f"{name.parent.name}: ", "another setting")
        told = [line for line in new if any(one in line for one in names)]
        if status != 0:
            return ("noticed, refused" if told else "refused without a name"), " ".join(told or new)[:600]
        try:
            same = result_of(self.copy) == self.result
        except (UserError, ValueError):
            same = False
        if told:
            return ("noticed, same result" if same else "noticed, other result"), " ".join(told)[:600]
        return ("harmless" if same else "SILENT"), " ".join(new)[:600]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=200, help="of single bytes; of each other kind a third")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only this kind")
    parser.add_argument("--only", default="*", help="a pattern of the files to damage")
    parser.add_argument("--own-settings", action="store_true", help="resume with the run's own config.toml")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    os.environ["COLUMNS"] = "2000"  # a line of the output is a line
    began, rng = time.monotonic(), random.Random(arguments.seed)
    tables: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        attack = Attack(Path(directory), arguments.own_settings)
        attack.files = [path for path in attack.files if path.match(arguments.only)]
        for kind in arguments.kind or KINDS:
            num = arguments.num if kind == "one byte" else -(-arguments.num // 3)
            rounds = -(-num // len(attack.files))
            order = [path for _ in range(rounds) for path in rng.sample(attack.files, len(attack.files))]
            counts, by_file, examples = Counter[str](), defaultdict[str, Counter[str]](Counter), dict[str, Any]()
            for name in order[:num]:
                outcome, line = attack.outcome(name, KINDS[kind], rng)
                counts[outcome] += 1
                by_file[str(name)][outcome] += 1
                examples.setdefault(f"{outcome}: {name}", line)
                if outcome in ("SILENT", "traceback", "refused without a name"):
                    print(kind, name, outcome, line, file=sys.stderr, flush=True)
            tables[kind] = {
                "counts": dict(counts),
                "by_file": {name: dict(found) for name, found in sorted(by_file.items())},
                "lines": {
                    key: line.replace(directory, "") for key, line in sorted(examples.items()) if "harmless" not in key
                },
            }
            print(kind, dict(counts), file=sys.stderr, flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python -m benchmarks.checks.byte_flips {' '.join(sys.argv[1:])}".strip(),
        "machine": machine_facts(),
        "resumed_with": "its own config.toml" if arguments.own_settings else "the settings on the command line",
        "seconds": round(time.monotonic() - began),
        "files": len(attack.files),
        "kinds": tables,
    }
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    bad = sum(table["counts"].get(one, 0) for table in tables.values() for one in ("SILENT", "traceback"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
