"""Interrupts commands at random moments, while other programs keep every core busy.

    python -m benchmarks.checks.stops RUN             30 stops, six of each command; `view` shows RUN

The commands are `rl` in one process and in several, `eval`, `inference` while clients ask it, and `view` while its page
is read. Each gets SIGINT as Ctrl-C in a terminal sends it: the whole group of processes. Noted are the seconds until it
has ended, the processes with its environment that are left 2 s later, the files left in its temporary directory, and
its last words. Writes `benchmarks/results/stops.json`.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, write_result
from benchmarks.harness.runs import flags

BUSY, LIMIT_S = 4, 10.0
MARK = "STOPPED_AT_RANDOM"
RECIPE = str(ROOT / "examples" / "reverse_text" / "rl.toml")
CHAT = b'{"messages": [{"role": "user", "content": "Count to a hundred."}], "max_tokens": 200}'


@contextmanager
def load() -> Iterator[None]:
    """Programs that only compute, at the priority of the commands."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def words_of(kind: str, directory: Path, viewed: Path) -> list[str]:
    """The command line of a kind."""
    run = {"output_dir": directory / "run", "eval.num_examples": 16}
    match kind:
        case "rl":
            return ["rl", "@", RECIPE, *flags(run)]
        case "rl, processes":
            return ["rl", "@", RECIPE, *flags({**run, "deployment.type": "processes", "max_async_level": 1})]
        case "eval":
            settings = {"output_dir": directory / "eval", "env.0.id": "reverse-text", "model.name": "smollm2-135m"}
            return ["eval", *flags(settings)]
        case "inference":
            return ["inference", *flags({"model.name": "smollm2-135m", "port": 0})]
    return ["view", str(viewed), "--port", "0", "--no-open"]


def ask(log: Path, kind: str, ended: threading.Event) -> None:
    """Be a client of a command that serves, until it has ended."""
    while not ended.wait(0.3):
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text(errors="replace"))
        if found is None:
            continue
        path = "/v1/chat/completions" if kind == "inference" else "/api/runs"
        request = urllib.request.Request(found[0] + path, CHAT if kind == "inference" else None)
        request.add_header("Content-Type", "application/json")
        try:
            urllib.request.urlopen(request, timeout=60).read()
        except OSError:
            continue


def marked(mark: str) -> list[str]:
    """The processes whose environment has the mark, as texts."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}\0".encode() in environ.read_bytes():
                line = (environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                line = line.replace(sys.executable, "python")
                if line:  # one that has ended already has none
                    found.append(f"{environ.parent.name}: {line[:200]}")
        except OSError:
            continue
    return found


def stop(kind: str, number: int, after_s: float, directory: Path, viewed: Path) -> dict[str, Any]:
    """Start a command, interrupt it after so many seconds, and see how it ends."""
    place = directory / str(number)
    (place / "tmp").mkdir(parents=True)
    log, ended = place / "log.txt", threading.Event()
    environ = {**os.environ, MARK: str(place), "TMPDIR": str(place / "tmp")}
    command = [sys.executable, "-m", "slimrl", *words_of(kind, place, viewed)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environ, start_new_session=True)
    clients = [threading.Thread(target=ask, args=(log, kind, ended)) for _ in range(3)]
    for client in clients if kind in ("inference", "view") else []:
        client.start()
    time.sleep(after_s)
    has_ended_before = process.poll() is not None
    began = time.monotonic()
    if not has_ended_before:
        os.killpg(process.pid, signal.SIGINT)
    try:
        status: int | None = process.wait(60)
    except subprocess.TimeoutExpired:
        status = None
    seconds = time.monotonic() - began
    ended.set()
    time.sleep(2)
    left, names = marked(str(place)), sorted(path.name for path in (place / "tmp").iterdir())
    files = [name for name in names if not name.startswith("torchinductor_")]  # PyTorch's cache, which is to stay
    for pid in (one.partition(":")[0] for one in left):
        os.kill(int(pid), signal.SIGKILL)
    said = log.read_text(errors="replace")
    found = {
        "command": kind,
        "after_s": round(after_s, 1),
        "ended_in_s": round(seconds, 2),
        "status": status,
        "ended_before": has_ended_before,
        "left_processes": left,
        "left_files": files,
        "traceback": "Traceback" in said,
        "last_words": said.splitlines()[-1].replace(str(viewed), "RUN").partition(":")[0] if said else "",
        "ok": not has_ended_before and status in (0, 130) and seconds <= LIMIT_S and not left and not files,
    }
    print(found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("viewed", type=Path, help="a run's directory, which `view` shows")
    parser.add_argument("--stops", type=int, default=30)
    parser.add_argument(
        "--latest", type=float, default=90.0, help="seconds after which a command is stopped at the latest"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background programs ignore it, and pass that on
    machine, rng = machine_facts(), random.Random(arguments.seed)
    directory = Path(tempfile.mkdtemp(prefix="slimrl-stops-"))
    kinds = ("rl", "rl, processes", "eval", "inference", "view")
    private = {str(directory): "RUNS", str(arguments.viewed): "RUN"}
    content: dict[str, Any] = {"busy_programs": BUSY, "limit_s": LIMIT_S, "stops": []}
    with load():
        for number in range(arguments.stops):
            after_s = rng.uniform(0.3, arguments.latest)
            found = stop(kinds[number % len(kinds)], number, after_s, directory, arguments.viewed)
            content["stops"].append(found)
            write_result(RESULTS / "stops.json", machine, content, private)
    shutil.rmtree(directory)
    bad = [found for found in content["stops"] if not found["ok"]]
    print(f"{len(content['stops'])} stops, {len(bad)} not as they should be")


if __name__ == "__main__":
    main()
