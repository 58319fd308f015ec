"""A process and all that it has started, and how they are ended. Knows nothing of what they do.

The number of a process that has ended may be given to another. So a process is known by its number and the moment at
which it began, and a group by a known process in it: as long as one is there, the group's number is nobody else's.
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

# Processes by number, with the moment at which each began, to the precision that the system has.
StartTimes = Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Process:
    """One of this machine's. `ended` is one that nobody has waited for yet: it does nothing more, but has its number
    still."""

    parent: int
    group: int
    began: str
    ended: bool


def start_time(pid: int) -> str:
    """When a process began; empty if there is none, or it is dead already."""
    found = processes(pid).get(pid)
    return "" if found is None or found.ended else found.began


def processes(pid: int = 0) -> dict[int, Process]:
    """The processes that this user may see by their numbers, or the one of that number, if it is there."""
    if not (PROC / "self" / "stat").exists():
        return _from_ps(pid)
    numbers = [pid] if pid else [int(name) for name in os.listdir(PROC) if name.isdecimal()]
    found = {}
    for number in numbers:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            text = (PROC / str(number) / "stat").read_text(encoding="utf-8", errors="replace")
            fields = text.rpartition(")")[2].split()  # those after the name, which may have brackets and spaces in it
            found[number] = Process(int(fields[1]), int(fields[2]), fields[19], fields[0] in "ZX")
    return found


def find_process_tree(known: StartTimes) -> dict[int, str]:
    """The known processes that still run, with all their descendants and with the members of the process groups that
    known ones lead or led: process number to time of start."""
    there = processes()
    ours = {pid for pid, moment in known.items() if pid in there and there[pid].began == moment}
    groups = {there[pid].group for pid in ours} & set(known)
    num = -1
    while num != len(ours):
        num = len(ours)
        ours |= {pid for pid, one in there.items() if one.group in groups or one.parent in ours}
    return {pid: there[pid].began for pid in ours if not there[pid].ended}


def end(known: StartTimes, patience_s: float) -> tuple[list[int], list[int]]:
    """SIGTERM to the whole family; SIGKILL to those who are still there when the patience ends, by Ctrl-C or by itself.
    Returns who had to be killed, and who is there even then."""
    ours = find_process_tree(known)
    known = {**known, **ours}
    _send(signal.SIGTERM, ours)
    with suppress(KeyboardInterrupt):
        _wait(known, patience_s)
    stubborn = find_process_tree(known)
    known.update(stubborn)
    deadline = time.monotonic() + patience_s
    while (left := find_process_tree(known)) and time.monotonic() < deadline:
        known.update(left)
        _send(signal.SIGKILL, left)  # again and again: what it starts meanwhile too
        time.sleep(POLL_S)
    return sorted(stubborn), sorted(left)


def _wait(known: dict[int, str], patience_s: float) -> None:
    """Until none is left, or the patience ends. `known` gets whom it has seen: of one whose parent has ended nobody can
    tell any more whose it was."""
    deadline = time.monotonic() + patience_s
    while (left := find_process_tree(known)) and time.monotonic() < deadline:
        known.update(left)
        time.sleep(POLL_S)


def _send(number: signal.Signals, to: StartTimes) -> None:
    for pid in to:
        with suppress(ProcessLookupError, PermissionError):  # ended meanwhile; or another user's, and told as left
            os.kill(pid, number)


def _from_ps(pid: int) -> dict[int, Process]:
    which = ["-p", str(pid)] if pid else ["-ax"]
    command = ["ps", *which, "-o", "pid=,ppid=,pgid=,stat=,lstart="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    found = {}
    for line in shown.stdout.splitlines():
        number, parent, group, state, moment = line.split(maxsplit=4)
        found[int(number)] = Process(int(parent), int(group), moment.strip(), state.startswith("Z"))
    return found
