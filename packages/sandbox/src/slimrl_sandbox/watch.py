"""The module enforces the limits that the kernel does not have, or has only for single processes.

Each execution has a polling thread outside of the event loop. So a loop that computes for seconds delays it no longer
than Python's lock is held. Between two polls, each process is bound by its own limits.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from slimrl_sandbox.base import Limits
from slimrl_sandbox.cgroup import Group

_INTERVAL_S = 0.05
# The kernel's maximum for a descriptor of a pipe, since pipes cannot be enlarged here.
_PIPE_BYTES = 2**16
_SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")


@dataclass(frozen=True, slots=True)
class Watched:
    """The watched process `first` with its descendants, its `group` if it has one, and a descriptor of the directory
    `scratch`. With -1 the processes are not isolated, and only their own memory counts."""

    first: int
    scratch: int
    group: Group | None
    limits: Limits


class Watch:
    """A watch over one execution. It calls `kill` when a limit is exceeded or `timeout_s` is over, and `reason` is then
    the limit. Both happen in the watching thread."""

    def __init__(self, watched: Watched, timeout_s: float, kill: Callable[[], None]) -> None:
        self.reason = ""
        self._watched = watched
        self._timeout_s = timeout_s
        self._ends_at = monotonic() + timeout_s
        self._kill = kill
        self._lock = threading.Lock()  # held while descriptors are used, because they are closed after `stop`
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the watch."""
        threading.Thread(target=self._run, name="slimrl-sandbox-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop the watch; afterwards it uses none of the watched resources."""
        with self._lock:
            self._stopped.set()

    def _run(self) -> None:
        while not self.reason and not self._stopped.wait(min(_INTERVAL_S, max(0.0, self._ends_at - monotonic()))):
            with self._lock:
                if self._stopped.is_set():
                    return
                try:
                    self.reason = self._find_excess()
                except Exception as error:
                    self.reason = f"the code could not be watched ({error!r}), and was ended"
                if self.reason:
                    self._kill()

    def _find_excess(self) -> str:
        limits = self._watched.limits
        if monotonic() >= self._ends_at:
            return f"the code took longer than timeout_s = {self._timeout_s:g} s, and was ended"
        if self._num_files() - 1 > limits.num_files:  # without the directory itself
            return f"the code made more than num_files = {limits.num_files} files, and was ended"
        if self._uses_too_much():
            return out_of_memory(limits)
        return ""

    def _num_files(self) -> int:
        """Return the number of files and directories, including the scratch directory itself."""
        if self._watched.scratch < 0:
            return 0
        status = os.fstatvfs(self._watched.scratch)
        return status.f_files - status.f_ffree

    def _uses_too_much(self) -> bool:
        watched = self._watched
        if watched.group:
            return watched.group.num_killed() > 0
        num_bytes = sum(map(_memory_bytes, _with_descendants(watched.first)))
        if watched.scratch >= 0:
            num_bytes += _socket_bytes(watched.first)
        return num_bytes > watched.limits.memory_mb * 2**20


def out_of_memory(limits: Limits) -> str:
    """Return the error of an execution that used too much memory."""
    return f"the code used more than memory_mb = {limits.memory_mb} MB, and was ended"


def _with_descendants(first: int) -> list[int]:
    """Return the ids of a process and its descendants."""
    found, waiting = [], [first]
    while waiting:
        process = waiting.pop()
        found.append(process)
        with suppress(OSError):  # the process may exit at any time
            # A child belongs to the thread that started it, so all threads are read.
            for thread in os.listdir(f"/proc/{process}/task"):
                waiting += map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split())
    return found


def _memory_bytes(process: int) -> int:
    """Return the memory of a process: anonymous and shared pages and page tables, but no pages of files, and for each
    descriptor the maximum of a pipe. Memory shared between processes counts for each of them."""
    num_bytes = 0
    with suppress(OSError):
        # The program chooses its own name, which is a line here; the kernel escapes only \n and \\ in it.
        for line in Path(f"/proc/{process}/status").read_bytes().split(b"\n"):
            if line.startswith((b"RssAnon:", b"RssShmem:", b"VmPTE:")):
                num_bytes += int(line.split()[1]) * 1024
        num_bytes += len(os.listdir(f"/proc/{process}/fd")) * _PIPE_BYTES
    return num_bytes


def _socket_bytes(process: int) -> int:
    """Return the maximum memory of the sockets in the process's network namespace: one and a half buffers each."""
    with suppress(OSError):
        words = Path(f"/proc/{process}/net/sockstat").read_text().split()  # sockets: used 2 TCP: inuse 0 ...
        return int(words[2]) * int(_SEND_BUFFER.read_text()) * 3 // 2
    return 0
