"""Gives random and damaged settings, rows and models to slimrl for a while; all but success or a line is a finding.

    uv run python -m benchmarks.checks.fuzz_config --minutes 10

A finding is an exception that is no `UserError` (those become a line), more than 10 s, more than 1 GiB of memory above
what the program has at the beginning, the end of the process, or a line that a terminal would take for commands. Every
32nd case goes through the real command. The input of each finding is left in `--findings`, with its `case.json`, and
the exit status is 1. Writes `benchmarks/results/fuzz_config.json`.
"""

import argparse
import contextlib
import io
import json
import os
import queue
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.harness.hostile_settings import (
    Case,
    SettingsCases,
    gguf_cases,
    model_cases,
    row_cases,
    write_case,
)
from benchmarks.harness.measure import RESULTS, machine_facts, write_result
from slimrl.cli import run
from slimrl.config.data import FileDataConfig
from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.models.gguf import convert
from slimrl.models.load import load_policy
from slimrl.trainer.sft.data import load_conversations
from slimrl_tools.prime_rl.keys import RL_KEYS, SFT_KEYS
from tests.models.gguf_files import write_gguf
from tests.tiny import tiny_model_dir, tiny_module, tiny_tokenizer

MOST_S = 10.0
MOST_BYTES = 2**30
START_S = 120.0
SILENT_S = 4 * MOST_S  # without a case's end, after which the process is taken for hung
REAL_EVERY = 32
# How often each kind is tried: those with a model take a hundred times as long.
SHARES = {"settings": 40, "rows": 20, "gguf": 2, "model": 2}


class Slow(BaseException):
    """A case took too long."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--findings", type=Path, default=Path(tempfile.gettempdir()) / "fuzz_config")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.seed, options.findings)
        return 0
    facts, ends = machine_facts(), time.monotonic() + 60 * options.minutes
    options.findings.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    seed = options.seed
    while time.monotonic() < ends:
        counts += watch(seed, options.findings, ends)
        seed += 1
    findings = sum(number for name, number in counts.items() if name.startswith("finding"))
    content = {
        "minutes": options.minutes,
        "seed": options.seed,
        "cases": dict(sorted(counts.items())),
        "findings": findings,
    }
    write_result(RESULTS / "fuzz_config.json", facts, content, {str(options.findings): "FINDINGS"})
    return 1 if findings else 0


def watch(seed: int, findings: Path, ends: float) -> Counter[str]:
    """The outcomes of a worker, until the end of the time or its own."""
    command = [sys.executable, "-m", "benchmarks.checks.fuzz_config", "--worker", "--seed", str(seed)]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        case = Path(home) / "case"
        with subprocess.Popen([*command, "--findings", home], stdout=subprocess.PIPE, text=True) as worker:
            lines: queue.Queue[str] = queue.Queue()
            threading.Thread(target=put_each, args=(worker.stdout or (), lines), daemon=True).start()
            patience_s = START_S
            while (left := ends - time.monotonic()) > 0:
                try:
                    kind, outcome = lines.get(timeout=min(left, patience_s)).rstrip("\n").split("\t", 1)
                except queue.Empty:
                    if time.monotonic() < ends:
                        counts["finding: hung or ended"] += 1
                        keep(case, findings, f"hung, or ended with {worker.poll()}")
                    break
                patience_s = SILENT_S
                good = outcome in ("success", "line")
                counts[f"{kind}: {outcome}" if good else f"finding in {kind}"] += 1
                if not good:
                    keep(case, findings, outcome)
            worker.kill()
    return counts


def put_each(lines: Iterable[str], into: queue.Queue[str]) -> None:
    """Put in the queue each line as it comes, until there are no more."""
    for line in lines:
        into.put(line)


def keep(case: Path, findings: Path, why: str) -> None:
    """Move the input of a finding to where it stays, and say so."""
    place = findings / f"finding_{time.time_ns()}"
    if case.exists():
        case.rename(place)
        (place / "why.txt").write_text(why.replace("\\n", "\n"), encoding="utf-8")
    print(f"{place}: {why[-300:]}", flush=True)


def work(seed: int, home: Path) -> None:
    """Try cases for ever, with a line for the outcome of each."""
    rng, out = random.Random(seed), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what libraries print
    os.environ |= {"SLIMRL_CACHE": str(home / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for name in [name for name in os.environ if name.startswith(("SLIMRL_", "PRIME_")) and name != "SLIMRL_CACHE"]:
        del os.environ[name]
    whole = write_gguf(home / "whole.gguf", tiny_module("llama"), tiny_tokenizer()).read_bytes()
    model = tiny_model_dir(home)
    cases = make_cases(rng, whole, model)
    load_policy(ModelConfig(name=str(model), device="cpu", dtype="float32"))  # whose libraries take memory, too
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, stop)
    for number, case in enumerate(cases):
        write_case(case, home / "case")
        is_real = number % REAL_EVERY == 0 and case.argv
        outcome = outcome_of_command(case, home / "case") if is_real else outcome_of(case, home / "case")
        out.write(f"{case.kind}\t{outcome}\n")
        out.flush()
        # Until it is kept.
        while outcome not in ("success", "line") and (home / "case").exists():
            time.sleep(0.01)


def make_cases(rng: random.Random, whole: bytes, model: Path) -> Iterator[Case]:
    kinds = {
        "settings": iter(SettingsCases(rng, [*RL_KEYS, *SFT_KEYS])),
        "rows": row_cases(rng),
        "gguf": gguf_cases(rng, whole),
        "model": model_cases(rng, model),
    }
    while True:
        yield next(kinds[rng.choices(list(SHARES), list(SHARES.values()))[0]])


def stop(*_: object) -> None:
    raise Slow


def outcome_of(case: Case, directory: Path) -> str:
    """What comes of a case in this process: `success`, `line`, or what is wrong."""
    said = io.StringIO()
    os.environ |= case.environ
    try:
        with contextlib.chdir(directory), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            signal.setitimer(signal.ITIMER_REAL, MOST_S)
            status = try_case(case)
    except UserError as error:
        status = 2 if str(error) else 1
    except BaseException:
        return traceback.format_exc(limit=-12).replace("\n", "\\n")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name in case.environ:
            os.environ.pop(name, None)
    return judged(status, said.getvalue())


def try_case(case: Case) -> int:
    match case.kind:
        case "rows":
            load_conversations(FileDataConfig(path="a.jsonl"), lambda text: None)
        case "gguf":
            convert(Path("a.gguf"))
        case "model":
            load_policy(ModelConfig(name="model", device="cpu", dtype="float32"))
        case _:
            return run(case.argv)
    return 0


def outcome_of_command(case: Case, directory: Path) -> str:
    """What comes of a case as a command of its own."""
    command = [sys.executable, "-m", "slimrl", *case.argv]
    try:
        environ = {**os.environ, **case.environ}
        done = subprocess.run(command, cwd=directory, env=environ, capture_output=True, timeout=3 * MOST_S, check=False)
    except subprocess.TimeoutExpired:
        return "the command took too long"
    except (ValueError, OSError, UnicodeEncodeError):  # no command line can have this
        return "line"
    return judged(done.returncode, (done.stderr or done.stdout).decode("utf-8", "replace"))


def judged(status: int, said: str) -> str:
    if status not in (0, 2):
        return f"status {status}: {said[-2000:]}".replace("\n", "\\n")
    if "\x1b" in said or "Traceback" in said or (status == 2 and len(said) > 200_000):
        return f"a text that must not be: {json.dumps(said[-2000:])}"
    return "line" if status else "success"


if __name__ == "__main__":
    sys.exit(main())
