"""The module has the sandbox on this machine, which starts a process under bubblewrap for each execution.

    async with BubblewrapSandbox({"shout": str.upper}) as sandbox:
        print((await sandbox.run("print(shout('hello'))")).stdout)

A process takes some ten milliseconds to start, so a few are started ahead; each is used once.
"""

import asyncio
import math
import os
import py_compile
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from slimrl.errors import UserError
from slimrl_sandbox import runner
from slimrl_sandbox.base import Execution, Limits, Tools
from slimrl_sandbox.cgroup import find_parent
from slimrl_sandbox.isolation import UNSAFE, Bare, Bubblewrap
from slimrl_sandbox.process import DESCRIPTORS, Process, Program
from slimrl_sandbox.sessions import Keeping, Session, Sessions

T = TypeVar("T")
NUM_SPARE = 2
_AT_ONCE = 2 * (os.cpu_count() or 1)


class BubblewrapSandbox:
    """A sandbox that runs at most `num_at_once` executions at a time; further ones queue.

    It belongs to one event loop, whose thread must outlive the executions: bubblewrap's `--die-with-parent` kills a
    process together with the thread that started it. `num_spare` processes are started ahead.

    Raises:
        UserError: here if bubblewrap is missing, and from `run` if it fails; the message includes the remedy.
    """

    def __init__(
        self,
        tools: Tools,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        *,
        isolation: Literal["bubblewrap", "none"] = "bubblewrap",
        num_at_once: int = _AT_ONCE,
        num_spare: int = NUM_SPARE,
        keeping: Keeping = Keeping(),  # noqa: B008  # frozen
    ) -> None:
        for name in tools:
            if not name.isidentifier():
                raise UserError(f"the tool `{name}` cannot be called from code; give it a name that Python takes.")
        self._tools = tools
        self._limits = limits
        self._isolation = Bare() if isolation == UNSAFE else Bubblewrap(limits.scratch_mb)
        self._groups = find_parent()
        self._num_at_once = num_at_once
        self._turn = asyncio.Semaphore(num_at_once)
        self._sessions = Sessions(limits, keeping)
        self._num_spare = num_spare
        self._spare: deque[Process] = deque()
        self._directory = tempfile.TemporaryDirectory(prefix="slimrl-sandbox-")
        self._runner = Path(self._directory.name, "runner.pyc")
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

        Raises:
            UserError: if `timeout_s` is not positive, or a process cannot be started.
        """
        if not timeout_s > 0:
            raise UserError(f"timeout_s = {timeout_s} leaves no time to run anything; set a number above 0.")
        with self._sessions.open(session_id) as session:
            # In this order: an execution that waits for its session must not use a slot.
            async with session.lock, self._turn:
                return await self._execution(session, Program(code, self._tools, timeout_s))

    @property
    def num_descriptors(self) -> int:
        """The maximum number of open files that all executions need together."""
        return DESCRIPTORS * (self._num_at_once + self._num_spare)

    @property
    def memory(self) -> str:
        """The kind of limit on the memory of a program's processes: by cgroup or by polling."""
        return "by cgroup" if self._groups else "by polling"

    def close(self) -> None:
        """End the spare processes and delete all files."""
        while self._spare:
            self._spare.popleft().end()
        self._sessions.close()
        self._directory.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _execution(self, session: Session, program: Program) -> Execution:
        process, scratch = await self._ready()
        try:
            await _in_thread(session.load, scratch)
            execution = await process.run(program)
            is_saved = await _in_thread(session.save, scratch)
        finally:
            process.end()
        self._replace()
        if not is_saved:
            note = "the files left in the working directory are too many, too large or too deep, and none were kept"
        elif not self._sessions.fits(session):
            note = "all sessions whose files fill sessions_mb are in use, and the files left here were not kept"
        else:
            return execution
        return replace(execution, error=f"{execution.error}\n{note}".strip())

    async def _ready(self) -> tuple[Process, int]:
        """Return a process that waits for its program, and a descriptor of its working directory. Raises UserError."""
        while True:
            is_spare = bool(self._spare)
            process = self._spare.popleft() if is_spare else self._new()
            try:
                return process, await process.begin()
            except UserError:
                process.end()
                if not is_spare:  # a spare process may have been killed since its start, so the next one is tried
                    raise
            except asyncio.CancelledError:
                process.end()
                raise

    def _new(self) -> Process:
        return Process(self._isolation, self._runner, self._limits, self._groups)

    def _replace(self) -> None:
        """Start spare processes until there are `num_spare`; they get ready in the background."""
        with suppress(UserError):  # the next execution that needs a process raises the error
            while len(self._spare) < self._num_spare:
                self._spare.append(self._new())


async def _in_thread(work: Callable[[int], T], scratch: int) -> T:
    """Call `work` on a directory in a thread and return its result. A cancelled caller still waits for the thread,
    because the descriptor is closed afterwards."""
    task = asyncio.ensure_future(asyncio.to_thread(work, scratch))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
