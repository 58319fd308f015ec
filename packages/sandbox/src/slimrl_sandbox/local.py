"""Implements the sandbox on this machine. It starts a process under bubblewrap for each execution.

async with BubblewrapSandbox({"shout": shout}) as sandbox:  # a function of a text
    print((await sandbox.run("print(shout('hello'))")).stdout)
"""

import asyncio
import math
import os
import py_compile
import shutil
import tempfile
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

from slimrl_sandbox import runner
from slimrl_sandbox.base import Execution, Limits, Tools
from slimrl_sandbox.isolation import UNSAFE, find_bubblewrap
from slimrl_sandbox.process import DESCRIPTORS, Program, execute

MAX_SESSION_BYTES = 512 * 2**20  # of all sessions together
_AT_ONCE = 2 * (os.cpu_count() or 1)
_MIN_SESSION_BYTES = 4096  # smaller sessions count as this size, so that the number of sessions is bounded


class BubblewrapSandbox:
    """A sandbox that runs at most `num_at_once` executions at a time; further executions wait in a queue.

    It keeps the packed files of sessions in memory, up to `MAX_SESSION_BYTES`. The sessions that were unused for the
    longest time are deleted first. If a program does not run to completion, the files of its session do not change.

    Raises:
        UserError: if bubblewrap is missing, and from `run` if bubblewrap fails; the message includes the remedy.
    """

    def __init__(
        self,
        tools: Tools,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        *,
        isolation: Literal["bubblewrap", "none"] = "bubblewrap",
        num_at_once: int = _AT_ONCE,
    ) -> None:
        self._tools = tools
        self._limits = limits
        self._isolated = isolation != UNSAFE
        if self._isolated:
            find_bubblewrap()
        self._num_at_once = num_at_once
        # The threads outlive the executions, because `--die-with-parent` kills a process when its starting thread
        # exits.
        self._threads = ThreadPoolExecutor(num_at_once, "slimrl-sandbox")
        self._running: set[threading.Event] = set()  # setting an event kills its execution
        self._files: dict[str, bytes] = {}  # packed files by session; the most recently used session is last
        directory = tempfile.mkdtemp(prefix="slimrl-sandbox-")
        self._delete = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._runner = Path(directory, "runner.pyc")
        # Compiled once, because otherwise each process would compile the runner's source again.
        py_compile.compile(
            runner.__file__,
            str(self._runner),
            dfile="<runner>",  # in place of a path of this machine, which code could read
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
        """Wait for a free slot, run the code and return the result. Errors of the code are in the result, not raised.
        Raises UserError if a process cannot be started."""
        if not session_id:
            return (await self._execution(Program(code, self._tools, timeout_s)))[0]
        num_bytes = min(self._limits.scratch_mb * 2**20, MAX_SESSION_BYTES)
        files = self._files.get(session_id, b"")
        execution, left = await self._execution(Program(code, self._tools, timeout_s, files, num_bytes))
        self._keep(session_id, files if left is None else left)
        return execution

    async def run_program(self, program: Program) -> Execution:
        """Wait for a free slot, run a program with its own tools, and return the result. Raises UserError as `run`
        does."""
        return (await self._execution(program))[0]

    async def end_session(self, session_id: str) -> None:
        """Delete the files of a session."""
        self._files.pop(session_id, None)

    @property
    def num_descriptors(self) -> int:
        """The maximum number of open files that all executions need together."""
        return DESCRIPTORS * self._num_at_once

    def close(self) -> None:
        """Kill the running executions and delete all files."""
        for stop in self._running:
            stop.set()
        self._threads.shutdown(cancel_futures=True)
        self._delete()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _execution(self, program: Program) -> tuple[Execution, bytes | None]:
        stop = threading.Event()
        self._running.add(stop)
        try:
            arguments = self._isolated, self._runner, self._limits, program, stop
            return await asyncio.get_running_loop().run_in_executor(self._threads, execute, *arguments)
        finally:
            stop.set()  # if the caller has been cancelled
            self._running.discard(stop)

    def _keep(self, session_id: str, files: bytes) -> None:
        """Keep the files of a session, and delete the oldest sessions until all files fit."""
        self._files.pop(session_id, None)
        if files:
            self._files[session_id] = files
        while sum(max(len(kept), _MIN_SESSION_BYTES) for kept in self._files.values()) > MAX_SESSION_BYTES:
            del self._files[next(iter(self._files))]
