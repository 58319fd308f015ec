"""Finds the parts of a run, the parts that wait, and the progress, only from files in the run's directory.

The command works on any machine that sees the directory, during the run and after its end.
"""

import fcntl
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from slimrl.config.deployment import Part
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.files import parse_object, replace_file
from slimrl.io.locks import holder_of
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.transport.roster import Facts, Roster, wait_path

PROGRAMS = "transport/programs.json"  # the programs that `rl` has started, and their processes
RECENT = 20  # number of steps for the mean time of a step
MAX_BYTES = 2**24
SUMMARY = "summary.json"  # exists only for a finished run
SILENT_S = 120.0  # seconds of silence before it is reported


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run. Each row of `parts` is a part, its process, and its activity."""

    summary: str
    parts: list[tuple[str, str, str]]
    notes: list[str]


def write_programs(output_dir: Path, programs: Mapping[str, str], deaths: int) -> None:
    """Write the process and host of each started program, keyed by its name, and the number of deaths so far."""
    content = {"programs": dict(programs), "deaths": deaths, "time": time.time()}
    replace_file(output_dir / PROGRAMS, [json.dumps(content).encode()])


def is_supervised(output_dir: Path) -> bool:
    """Return True if the run is running, and `rl` has started its parts."""
    return (output_dir / PROGRAMS).exists() and Roster(output_dir).find("orchestrator") is not None


def find_status(output_dir: Path) -> RunStatus:
    """Return the state of the run in a directory. Raises UserError if the directory holds no run, or the run of another
    command."""
    if not RunDir(output_dir).settings.exists() and not RunDir(output_dir).transport.exists():
        raise UserError(f"{output_dir} holds no run: there is no config.toml. Name the `output_dir` of one.")
    roster = Roster(output_dir)
    members = {name: facts for part in get_args(Part) for name, facts in roster.members(part).items()}
    parts = [(name, _describe(facts), _activity(output_dir, name, facts)) for name, facts in members.items()]
    started = _read(output_dir / PROGRAMS)
    parts += _find_missing(started.get("programs", {}), members) if members else []
    process = _find_process(output_dir)
    runs = bool(members or process)
    done, most, summary = _summary(output_dir, runs)
    notes = [*_notes(output_dir, started, runs)]
    if not members:
        is_over = 0 < most <= done and (output_dir / SUMMARY).exists()
        left = "it has ended" if is_over else "it does not run now: `--resume` continues it"
        notes.insert(0, f"it runs as {process}" if process else left)
    return RunStatus(summary, parts, notes)


def _find_process(output_dir: Path) -> str:
    """Return the process that holds the run's lock, such as "process 4711"; an empty text if no process holds it."""
    path = RunDir(output_dir).lock
    if not path.is_file():
        return ""
    if pid := holder_of(path):
        return f"process {pid}"
    # The holder is unknown without /proc, and on another machine.
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file releases it
    except BlockingIOError:
        return "a process of another machine or container"
    except OSError:  # without permission to read it, or without locks on this file system
        return ""
    return ""


def _summary(output_dir: Path, runs: bool) -> tuple[int, int, str]:
    """Return the number of finished steps, the number of all steps, and a line with both and the seconds per step.
    While the run is alive, the line also has the remaining time."""
    path = RunDir(output_dir).metrics
    lines = [one for one in read_metrics(path) if "time/step_s" in one[1]] if path.exists() else []
    most = 0
    if RunDir(output_dir).settings.exists():
        config = read_run_config(output_dir)
        if not isinstance(config, RLConfig):
            raise UserError(
                f"{output_dir} is no run of `slimrl rl`, whose parts this command shows. `slimrl view {output_dir}` "
                "shows any run."
            )
        most = config.max_steps
    if not lines:
        work = ": it loads, evaluates the base model, or warms up" if runs else ""
        return 0, most, f"{output_dir}: before the first of {most} steps{work}"
    done, newest = lines[-1][0] + 1, lines[-1][1]
    last = [metrics["time/step_s"] for _, metrics in lines[-RECENT:]]
    each_s = sum(last) / len(last)
    reward = f", reward {newest['reward/mean']:.3f}" if "reward/mean" in newest else ""
    left = ", all of them trained"
    if most > done:
        left = f", about {(most - done) * each_s / 60:.0f} min left" if runs else ""
    return done, most, f"{output_dir}: {done} of {most} steps{reward}, {each_s:.1f} s a step{left}"


def _activity(output_dir: Path, name: str, facts: Facts) -> str:
    """Return the activity of a living part."""
    part = next(part for part in get_args(Part) if name.startswith(part))
    wait = _read(wait_path(output_dir, part))
    if wait and str(wait.get("pid")) == facts["pid"]:
        return f"waits for the {wait['for']}'s {wait['what']}, for {time.time() - wait['since']:.0f} s"
    return f"samples at {facts['address']}" if part == "inference" else "at work"


def _find_missing(programs: Mapping[str, str], members: Mapping[str, Facts]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each started program without an announcement: it still loads, or waits for a node."""
    there = {facts["pid"] for facts in members.values()}
    for name, process in programs.items():
        words = process.replace(";", " ").split()
        if name not in members and not there & set(words):  # only the first of several ranks announces itself
            yield name, process, "is not ready: it loads, or waits for a node"


def _notes(output_dir: Path, started: Mapping[str, Any], runs: bool) -> Iterator[str]:
    """Yield notes about deaths, a long silence, and the logs."""
    if started.get("deaths"):
        yield f"{started['deaths']} of its programs have died so far, and were started again"
    path = RunDir(output_dir).metrics
    # A resumed run has its old metrics file until its trainer has loaded.
    last = max(path.stat().st_mtime, float(started.get("time", 0.0))) if path.exists() else time.time()
    silent_s = time.time() - last
    if runs and silent_s > SILENT_S and not (output_dir / SUMMARY).exists():
        yield f"it has logged nothing for {silent_s / 60:.0f} min"
    if (logs := output_dir / "logs").exists():
        yield f"logs: {logs}"


def _describe(facts: Facts) -> str:
    return f"{facts['pid']} on {facts['host']}"


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(parse_object(read_regular(path, MAX_BYTES))) if path.exists() else {}
    except (ValueError, UserError):
        return {}
