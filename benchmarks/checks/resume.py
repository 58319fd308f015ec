"""Kills a real run with SIGKILL at random moments, resumes it, and compares every later metric bit for bit.

`uv run python -m benchmarks.checks.resume`: SmolLM2-135M on `examples/reverse_text/rl.toml`, shortened; first without
interruption, then killed three times. Writes `benchmarks/results/resume.json`; exits with 1 if a digit differs.
"""

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from slimrl.monitor.sinks import read_metrics
from tests.reproducible import is_reproducible

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "resume.json"
SHORTENED = {"max_steps": 12, "warmup.max_steps": 2, "eval.num_examples": 8, "ckpt.interval_steps": 2}


def command(output_dir: Path, *more: str) -> list[str]:
    """The `rl` command on the shortened recipe."""
    flags = [text for key, value in SHORTENED.items() for text in (f"--{key}", str(value))]
    recipe = str(ROOT / "examples" / "reverse_text" / "rl.toml")
    return [sys.executable, "-m", "slimrl", "rl", "@", recipe, "--output_dir", str(output_dir), *flags, *more]


def reproducible(output_dir: Path) -> list[tuple[int, dict[str, float]]]:
    """Every metric that a resumed run must repeat."""
    lines = read_metrics(output_dir / "metrics.jsonl")
    return [(step, {k: v for k, v in metrics.items() if is_reproducible(k)}) for step, metrics in lines]


def weights_hash(output_dir: Path) -> str:
    """SHA-256 of the final weights."""
    path = output_dir / "weights" / f"step_{SHORTENED['max_steps']}" / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def steps_logged(output_dir: Path) -> int:
    """Lines of metrics so far."""
    path = output_dir / "metrics.jsonl"
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def kill_after(output_dir: Path, seconds: float, *more: str) -> int:
    """Start or resume the run, kill it after that many seconds, say how many steps it had logged."""
    process = subprocess.Popen(command(output_dir, *more), stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    if process.poll() is not None:
        raise SystemExit(f"the run ended by itself within {seconds:.0f} s; nothing was left to kill")
    process.kill()
    process.wait()
    return steps_logged(output_dir)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random moments (default: the clock)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        whole, killed = Path(directory) / "whole", Path(directory) / "killed"
        began = time.monotonic()
        subprocess.run(command(whole), check=True)
        whole_s = time.monotonic() - began
        moments = []
        for number in range(3):
            seconds = rng.uniform(0.15, 0.45) * whole_s  # late enough to have begun, early enough to be running
            logged = kill_after(killed, seconds, *(["--resume"] if number else []))
            moments.append({"seconds_after_start": round(seconds, 2), "steps_logged": logged})
            print(f"killed {seconds:.1f} s after its start, {logged} steps logged", flush=True)
        subprocess.run(command(killed, "--resume"), check=True)
        same_metrics = reproducible(whole) == reproducible(killed)
        same_weights = weights_hash(whole) == weights_hash(killed)
        num_values = sum(len(metrics) for _, metrics in reproducible(whole))
    result = {
        "kills": moments,
        "seed": arguments.seed,
        "metrics_compared": num_values,
        "metrics_identical": same_metrics,
        "final_weights_identical": same_weights,
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if same_metrics and same_weights else 1


if __name__ == "__main__":
    sys.exit(main())
