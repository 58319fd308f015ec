"""Are plans right? Predicted and measured peak memory and step time of the five examples, and of four variations.

Each case is planned by `slimrl plan`, which times this machine, and then run by `slimrl rl` for its warm-up (two steps
of it in the matching game) and a few steps with the same words; the run's own summary has what was predicted and what
was measured. Runs are thrown away. A case in which other programs took more than a twentieth of the cores' time is
marked: its memory counts, its time does not.

    python -m benchmarks.speed.plan
    python -m benchmarks.speed.plan --cases reverse_text "reverse_text, LoRA" --steps 3
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, cores, machine_facts, markdown_table, write_result

REVERSE = "examples/reverse_text/rl.toml"
LORA = ("--model.lora.rank", "8", "--trainer.optim.lr", "2e-4", "--warmup.optim.lr", "1e-3")  # as docs/lora.md has it
CASES: dict[str, list[str]] = {
    **{
        name: [f"examples/{name}/rl.toml"]
        for name in ("reverse_text", "alphabet_sort", "wordle", "wiki_search", "matching_game")
    },
    "reverse_text, LoRA": [REVERSE, *LORA],
    "reverse_text, seq_len doubled": [REVERSE, "--seq_len", "256"],
    "reverse_text, batch halved": [REVERSE, "--orchestrator.batch_size", "32"],
    "reverse_text, float32": [REVERSE, "--model.dtype", "float32"],
}
HEAD = (
    "run",
    "memory predicted, GB",
    "measured",
    "off by",
    "step predicted, s",
    "measured",
    "off by",
    "taken by others",
)
EXAMPLES = 16
MOST_TAKEN = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS / "plan.json")
    arguments = parser.parse_args()
    facts, results = machine_facts(), earlier_results(arguments.output, arguments.cases)
    for name in arguments.cases:
        results[name] = result_of(CASES[name], arguments.steps)
        # After each case: an interrupted benchmark keeps what it has.
        in_order = {case: results[case] for case in CASES if case in results}
        write_result(arguments.output, facts, {"steps": arguments.steps, "results": in_order}, {})
        print(f"{name}: {results[name]}", flush=True)
    print(f"\n{table(results)}")


def earlier_results(path: Path, cases: Sequence[str]) -> dict[str, Any]:
    """The results of other cases that a file has already."""
    if not path.exists() or len(cases) == len(CASES):
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def result_of(words: Sequence[str], steps: int) -> dict[str, Any]:
    """What a run was foretold to take, and what it took."""
    clock = OthersClock()
    with tempfile.TemporaryDirectory() as directory:
        output_dir = Path(directory) / "run"
        changes: dict[str, object] = {"max_steps": steps, "eval.num_examples": EXAMPLES, "ckpt.interval_steps": 0}
        changes |= {"warmup.max_steps": 2} if "matching" in words[0] else {}  # of 128, which take half an hour
        changes |= {"output_dir": output_dir}
        flags = [text for key, value in changes.items() for text in (f"--{key}", str(value))]
        # The times that `plan` measures are kept in a cache, from which `rl` foretells them.
        environment = {"SLIMRL_CACHE": str(cache_with_models(Path(directory)))}
        for command in ("plan", "rl"):
            slimrl([command, "@", *words, *flags], environment)
        summary = json.loads((output_dir / "summary.json").read_text(encoding="utf-8"))
    rounded = {
        kind: {key: round(value, 3) for key, value in summary[kind].items()} for kind in ("predicted", "measured")
    }
    return {**rounded, "taken_by_others": round(clock.share(), 3)}


class OthersClock:
    """Tells what share of the cores' time other programs than this one's children have taken since it was made."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), busy_s(), own_s()

    def share(self) -> float:
        """The share, from 0 to 1."""
        others = busy_s() - self._busy - (own_s() - self._own)
        return max(0.0, others) / (time.monotonic() - self._began) / len(cores())


def busy_s() -> float:
    """The seconds that all cores have worked since the machine started; Linux alone tells them."""
    user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().splitlines()[0].split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """The seconds that this process and those it has waited for have worked."""
    return sum(os.times()[:4])


def cache_with_models(directory: Path) -> Path:
    """A cache of its own, in which nothing was timed before, with links to all else that the user's has."""
    base = os.environ.get("SLIMRL_CACHE") or os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")) + "/slimrl"
    cache = directory / "cache"
    cache.mkdir()
    for entry in Path(base).iterdir() if Path(base).is_dir() else ():
        if entry.name != "plan":
            (cache / entry.name).symlink_to(entry)
    return cache


def slimrl(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a command of slimrl to its end; its output is shown only if it fails."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-m", "slimrl", *words],
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": path, "WANDB_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode:
        sys.exit(f"{result.stdout}\nslimrl {' '.join(words)} failed with status {result.returncode}")


def table(results: Mapping[str, Any]) -> str:
    """The results as a table."""
    rows = []
    for name, result in results.items():
        predicted, measured = result["predicted"], result["measured"]
        cells: list[str] = []
        for key, digits in (("peak_gb", 2), ("step_s", 1)):
            off = predicted[key] / measured[key] - 1
            cells += [f"{predicted[key]:.{digits}f}", f"{measured[key]:.{digits}f}", f"{off:+.0%}"]
        busy = f"{result['taken_by_others']:.0%}" + (" (busy)" if result["taken_by_others"] > MOST_TAKEN else "")
        rows.append((name, *cells, busy))
    return markdown_table(HEAD, rows)


if __name__ == "__main__":
    main()
