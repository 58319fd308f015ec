"""Reads the state of a run from files in its directory: the parts, the reason why a part waits, and the progress.

This works on any machine that sees the directory, during the run and after its end.

    transport/programs.json    the programs that `rl` has started; on a Ray cluster, also the facts that they announce
    transport/num_samplers     the number of samplers that a user requests
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from filelock import FileLock

from slimrl.config.deployment import Part
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.files import parse_object, replace_file
from slimrl.io.locks import acquire, holder_of
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.transport.roster import Facts, file_members, wait_path

PROGRAMS, SCALE = "programs.json", "num_samplers"
RECENT = 20  # number of steps for the mean time of a step
MAX_BYTES = 2**24
SILENT_S = 120.0  # seconds of silence before it is reported
STEP_S = "time/step_s"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run. Each row of `parts` is a part, its process, and its activity."""

    summary: str
    parts: list[tuple[str, str, str]]
    notes: list[str]


def write_programs(run: RunDir, programs: Mapping[str, str], deaths: int, members: Mapping[str, Facts]) -> None:
    """Write the state of the started programs to a file. `programs` maps names to processes, `deaths` is the number of
    deaths so far, and `members` are the facts of parts without files of their own (on a Ray cluster)."""
    content = {"programs": dict(programs), "deaths": deaths, "members": dict(members), "time": time.time()}
    replace_file(run.transport / PROGRAMS, [json.dumps(content).encode()])


def is_supervised(run: RunDir) -> bool:
    """Return True if the run is in progress, and `rl` has started its parts."""
    return (run.transport / PROGRAMS).exists() and bool(_find_process(run))


def write_scale(run: RunDir, num: int) -> None:
    """Request `num` samplers for the run; 0 selects the number in its settings."""
    replace_file(run.transport / SCALE, [str(num).encode()])


def read_scale(run: RunDir) -> int:
    """Return the requested number of samplers; 0 without a request."""
    path = run.transport / SCALE
    text = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    return int(text) if text.isdecimal() else 0


def find_status(output_dir: Path) -> RunStatus:
    """Return the state of the run in a directory. Raises UserError if the directory holds no run of `slimrl rl`."""
    run = RunDir(output_dir)
    if not run.settings.exists() and not run.transport.exists():
        raise UserError(f"{output_dir} holds no run: there is no config.toml. Name the `output_dir` of one.")
    started, process = _read(run.transport / PROGRAMS), _find_process(run)
    members = {name: facts for part in get_args(Part) for name, facts in file_members(run, part).items()}
    members |= started.get("members", {}) if process else {}
    parts = [(name, f"{facts['pid']} on {facts['host']}", _activity(run, facts)) for name, facts in members.items()]
    parts += _find_missing(started.get("programs", {}), members) if members else []
    runs = bool(members or process)
    done, most, summary = _summary(run, runs)
    notes = [*_notes(run, started, runs)]
    if not members:
        is_over = 0 < most <= done and run.summary.exists()
        left = "it has ended" if is_over else "it does not run now: `--resume` continues it"
        notes.insert(0, f"it runs as {process}" if process else left)
    return RunStatus(summary, parts, notes)


def _find_process(run: RunDir) -> str:
    if not run.lock.is_file():
        return ""
    if pid := holder_of(run.lock):
        return f"process {pid}"
    # The holder is unknown without /proc, and on another machine.
    lock = FileLock(run.lock)
    try:
        if not acquire(lock, 0.0):
            return "a process of another machine or container"
        lock.release()
    except OSError:  # without permission to read it, or without locks on this file system
        pass
    return ""


def _summary(run: RunDir, runs: bool) -> tuple[int, int, str]:
    """Return the number of finished steps, the number of all steps, and a line with both and the seconds per step. If
    `runs`, the run is alive, and the line also has the remaining time."""
    steps = [one for one in read_metrics(run.metrics) if STEP_S in one[1]] if run.metrics.exists() else []
    most, name = 0, run.path
    if run.settings.exists():
        config = read_run_config(name)
        if not isinstance(config, RLConfig):
            raise UserError(
                f"{name} is no run of `slimrl rl`, whose parts this command shows. `slimrl view {name}` shows any run."
            )
        most = config.max_steps
    if not steps:
        work = ": it loads, evaluates the base model, or warms up" if runs else ""
        return 0, most, f"{name}: before the first of {most} steps{work}"
    done, newest = steps[-1][0] + 1, steps[-1][1]
    last = [metrics[STEP_S] for _, metrics in steps[-RECENT:]]
    each_s = sum(last) / len(last)
    reward = f", reward {newest['reward/mean']:.3f}" if "reward/mean" in newest else ""
    left = ", all of them trained"
    if most > done:
        left = f", about {(most - done) * each_s / 60:.0f} min left" if runs else ""
    return done, most, f"{name}: {done} of {most} steps{reward}, {each_s:.1f} s a step{left}"


def _activity(run: RunDir, facts: Facts) -> str:
    wait = _read(wait_path(run, facts["part"]))
    if wait and str(wait.get("pid")) == facts["pid"]:
        return f"waits for the {wait['for']}'s {wait['what']}, for {time.time() - wait['since']:.0f} s"
    return f"samples at {facts['address']}" if facts["part"] == "inference" else "at work"


def _find_missing(programs: Mapping[str, str], members: Mapping[str, Facts]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each program that was started but is not ready. It still loads its model, or waits for a node."""
    there = {facts["pid"] for facts in members.values()}
    for name, process in programs.items():
        words = process.replace(";", " ").split()
        if name not in members and not there & set(words):  # only the first of several ranks announces itself
            yield name, process, "is not ready: it loads, or waits for a node"


def _notes(run: RunDir, started: Mapping[str, Any], runs: bool) -> Iterator[str]:
    if started.get("deaths"):
        yield f"{started['deaths']} of its programs have died so far, and were started again"
    # A resumed run keeps its old metrics file until its trainer has loaded, so the time of the programs' file counts,
    # too.
    last = max(run.metrics.stat().st_mtime, started.get("time", 0.0)) if run.metrics.exists() else time.time()
    silent_s = time.time() - last
    if runs and silent_s > SILENT_S and not run.summary.exists():
        yield f"it has logged nothing for {silent_s / 60:.0f} min"
    if run.logs.exists():
        yield f"logs: {run.logs}"


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_object(read_regular(path, MAX_BYTES))) if path.exists() else {}
    except (ValueError, UserError):
        return {}
