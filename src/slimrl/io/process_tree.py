"""Finds and ends a process tree: a process with all of its descendants.

The kernel reuses the ids of dead processes. So a process is identified by its id and its start time. A process group is
identified by a known member: while a member runs, the kernel cannot reuse the group's id.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.05
PROC = Path("/proc")

# A mapping from process id to start time. Its format depends on the system: clock ticks since boot in /proc, a date in
# `ps`.
StartTimes = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine. `ended` is True for a zombie: it is dead, but keeps its id until its parent waits for
    it. `stopped` is True if a signal or a debugger has stopped the process."""

    parent: int
    group: int
    began: str
    ended: bool
    stopped: bool = False


def start_time(pid: int) -> str:
    """Return the start time of a process; empty if the process does not exist, or is a zombie."""
    found = processes(pid).get(pid)
    return "" if found is None or found.ended else found.began


def is_stopped(pid: int) -> bool:
    """Return True if a process of this machine is stopped by a signal or a debugger."""
    found = processes(pid).get(pid)
    return found is not None and found.stopped


def processes(pid: int = 0) -> dict[int, Process]:
    """Return a dict from process ids to the processes that this user may see. With `pid`, the dict has only this
    process, if it exists."""
    if not (PROC / "self" / "stat").exists():
        return _from_ps(pid)
    numbers = [pid] if pid else [int(name) for name in os.listdir(PROC) if name.isdecimal()]
    found = {}
    for number in numbers:
        # The process may have exited, or may belong to another user if /proc is mounted with `hidepid=1`.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            text = (PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace")
            # The fields of proc(5) after the name of the process. The name is in brackets, and may itself have brackets
            # and spaces. Field 0 is the state, 1 the parent, 2 the process group, 19 the start time.
            fields = text.rpartition(")")[2].split()
            found[number] = Process(int(fields[1]), int(fields[2]), fields[19], fields[0] in "ZX", fields[0] in "Tt")
    return found


def find_process_tree(known: StartTimes) -> dict[int, str]:
    """Return the start times, by process id, of all running processes in the tree. The tree contains the `known`
    processes, their descendants, and the members of process groups that a known process leads or led."""
    there = processes()
    ours = {pid for pid, moment in known.items() if pid in there and there[pid].began == moment}
    groups = {there[pid].group for pid in ours} & set(known)
    # The transitive closure: each pass adds the children of the processes found so far, until a pass adds none.
    num = -1
    while num != len(ours):
        num = len(ours)
        ours |= {pid for pid, one in there.items() if one.group in groups or one.parent in ours}
    return {pid: there[pid].began for pid in ours if not there[pid].ended}


def find_marked(name: str, value: str) -> dict[int, str]:
    """Return the start times, by process id, of this user's processes whose environment variable `name` was `value` at
    their start. Return an empty dict on systems without /proc."""
    mark = f"{name}={value}".encode()
    found = {}
    for pid, one in processes().items() if PROC.is_dir() else ():
        with suppress(OSError):
            if mark in (PROC / str(pid) / "environ").read_bytes().split(b"\0") and not one.ended:
                found[pid] = one.began
    return found


def end(known: StartTimes, patience_s: float) -> tuple[list[int], list[int]]:
    """Send SIGTERM to a process tree. After `patience_s` seconds or Ctrl-C, send SIGKILL to processes that still run.

    Return the ids that needed SIGKILL, and the ids that survived it.
    """
    ours = find_process_tree(known)
    known = {**known, **ours}
    _send(signal.SIGTERM, ours)
    _send(signal.SIGCONT, ours)  # a stopped process handles SIGTERM only after SIGCONT
    with suppress(KeyboardInterrupt):
        _await_end(known, patience_s)
    stubborn = find_process_tree(known)
    return sorted(stubborn), kill({**known, **stubborn}, patience_s)


def kill(known: StartTimes, patience_s: float) -> list[int]:
    """Send SIGKILL to a process tree until it is dead, for at most `patience_s` seconds. Return the surviving ids."""
    return sorted(_await_end({**known}, patience_s, signal.SIGKILL))


def _await_end(known: dict[int, str], patience_s: float, number: signal.Signals | None = None) -> StartTimes:
    """Wait at most `patience_s` seconds until the whole process tree is dead. Return the processes that still run. If
    `number` is given, send this signal repeatedly, because the tree may start new processes.

    Add every process found to `known`: after its parent's death, it can no longer be found as a descendant.
    """
    deadline = time.monotonic() + patience_s
    while (left := find_process_tree(known)) and time.monotonic() < deadline:
        known.update(left)
        if number:
            _send(number, left)
        time.sleep(POLL_S)
    return left


def _send(number: signal.Signals, to: StartTimes) -> None:
    for pid in to:
        with suppress(ProcessLookupError, PermissionError):  # already dead, or owned by another user and reported later
            os.kill(pid, number)


def _from_ps(pid: int) -> dict[int, Process]:  # for macOS, which has no /proc
    which = ["-p", str(pid)] if pid else ["-ax"]
    command = ["ps", *which, "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    found = {}
    for line in shown.stdout.splitlines():
        number, parent, group, state, moment = line.split(maxsplit=4)
        found[int(number)] = Process(int(parent), int(group), moment.strip(), state[0] == "Z", state[0] == "T")
    return found
