"""Enforces the limits of an execution. The kernel enforces some limits; this module polls the others.

Between two polls, only the kernel's limits restrict a process.
"""

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path

from slimrl_sandbox.base import Limits

_MB = 2**20
# The kernel's maximum for a descriptor of a pipe, since pipes cannot be enlarged in the sandbox.
_PIPE_BYTES = 2**16
_SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")


def find_excess(limits: Limits, first: int, scratch: int) -> str:
    """Return an error if a process and its descendants exceed a limit, else an empty text.

    `scratch` is a descriptor of the working directory. It is -1 if the processes are not isolated; then files and
    sockets are not checked.
    """
    num_bytes = sum(map(_memory_bytes, _with_descendants(first)))
    if scratch >= 0:
        status = os.fstatvfs(scratch)
        if status.f_files - status.f_ffree - 1 > limits.num_files:  # without the directory itself
            return f"the code made more than num_files = {limits.num_files} files, and was ended"
        num_bytes += _socket_bytes(first)
    if num_bytes > limits.memory_mb * _MB:
        return f"the code used more than memory_mb = {limits.memory_mb} MB, and was ended"
    return ""


def rlimits(limits: Limits) -> list[tuple[int, tuple[int, int]]]:
    """Return the arguments for each call of `setrlimit`: a resource, and a pair of its soft and hard limit."""
    same = {
        resource.RLIMIT_AS: limits.memory_mb * _MB,
        resource.RLIMIT_NPROC: limits.num_processes,
        resource.RLIMIT_FSIZE: limits.file_mb * _MB,
        resource.RLIMIT_NOFILE: limits.num_open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: limits.num_processes,  # timers and queued signals
        resource.RLIMIT_RTPRIO: 0,  # a program with real-time priority would block the host
        resource.RLIMIT_NICE: 0,
    }
    cpu = (limits.cpu_s, limits.cpu_s + 1)  # the soft limit sends SIGXCPU, which code may catch; the hard one kills
    return [(resource.RLIMIT_CPU, cpu), *((which, (limit, limit)) for which, limit in same.items())]


def first_child(process: int) -> int:
    """Return the id of a process's first child. Raises OSError if the process has no child, or if the kernel does not
    list children (CONFIG_PROC_CHILDREN)."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    if not found:
        raise ProcessLookupError(errno.ESRCH, "bubblewrap has ended")
    return int(found[0])


def _with_descendants(first: int) -> list[int]:
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
    """Return the memory of a process in bytes: anonymous and shared pages, page tables, and the maximum size of a pipe
    for each open descriptor. Pages of files do not count. Memory that processes share counts for each of them."""
    num_bytes = 0
    with suppress(OSError):
        # One line has the process's name, which the program chooses; the kernel escapes only \n and \\ in the name.
        for line in Path(f"/proc/{process}/status").read_bytes().split(b"\n"):
            if line.startswith((b"RssAnon:", b"RssShmem:", b"VmPTE:")):
                num_bytes += int(line.split()[1]) * 1024
        num_bytes += len(os.listdir(f"/proc/{process}/fd")) * _PIPE_BYTES
    return num_bytes


def _socket_bytes(process: int) -> int:
    """Return the maximum memory of the sockets in the process's network namespace: one and a half send buffers for each
    socket."""
    with suppress(OSError):
        words = Path(f"/proc/{process}/net/sockstat").read_text().split()  # sockets: used 2 TCP: inuse 0 ...
        return int(words[2]) * int(_SEND_BUFFER.read_text()) * 3 // 2
    return 0
