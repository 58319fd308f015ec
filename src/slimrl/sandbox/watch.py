"""The module enforces the limits that the kernel has for single processes only, or not at all.

It polls; between two polls, each process is bound by its own limits.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from slimrl.sandbox.base import Limits

_INTERVAL_S = 0.05


class Watch:
    """A watch over the process `first` with its descendants, and over the file system of the directory `scratch`.

    `scratch` is a descriptor, or -1 if the number of files has no limit.
    """

    def __init__(self, first: int, scratch: int, limits: Limits) -> None:
        self._first = first
        self._scratch = scratch
        self._limits = limits

    async def run(self, finish: Callable[[str], None]) -> None:
        """Watch until cancelled, or until a limit is exceeded; then call `finish` with a text that says which."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._num_files() - 1 > self._limits.num_files:  # without the directory itself
                finish(f"the code made more than num_files = {self._limits.num_files} files, and was ended")
                return
            if sum(map(_memory_bytes, _with_descendants(self._first))) > self._limits.memory_mb * 2**20:
                finish(f"the code used more than memory_mb = {self._limits.memory_mb} MB, and was ended")
                return

    def _num_files(self) -> int:
        """The number of files and directories, with the scratch directory itself."""
        if self._scratch < 0:
            return 0
        status = os.fstatvfs(self._scratch)
        return status.f_files - status.f_ffree


def _with_descendants(first: int) -> list[int]:
    """The ids of a process and its descendants."""
    found, waiting = [], [first]
    while waiting:
        process = waiting.pop()
        found.append(process)
        with suppress(OSError):  # it may end at any time
            # A child belongs to the thread that started it, so all threads are asked.
            for thread in os.listdir(f"/proc/{process}/task"):
                waiting += map(int, Path(f"/proc/{process}/task/{thread}/children").read_text().split())
    return found


def _memory_bytes(process: int) -> int:
    """The memory of a process without pages of files. Memory shared between processes counts for each of them."""
    num_kb = 0
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                num_kb += int(line.split()[1])
    return num_kb * 1024
