"""The processes of one run: started by this one, watched, and ended with it, whatever ends it.

Each child has a session of its own, so that Ctrl-C reaches the parent alone, which ends all in order. Its output goes to
a file in the run's directory; when it fails, the last lines are shown. On Linux the kernel ends a child whose parent has
died.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from slimrl.errors import UserError, visible
from slimrl.services.process_tree import end, kill, start_time

PATIENCE_S = 10.0  # for children to end by themselves, before SIGKILL
LAST_LINES = 20
PR_SET_PDEATHSIG = 1


class Children:
    """The child processes of a run, as a context: all are ended when it is left."""

    def __init__(self, logs: Path, note: Callable[[str], None]) -> None:
        self._logs, self._note = logs, note
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Starts `python ARGUMENTS` as the child `name`, whose output goes to `logs/NAME.log`."""
        log = self.log(name)
        with log.open("ab") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self._note(f"{name}: process {self._running[name].pid}, log {log}")

    def log(self, name: str) -> Path:
        """The file with the output of a child."""
        return self._logs / f"{name}.log"

    def check(self) -> None:
        """Raises UserError with the last lines of a child that has failed."""
        for name, process in self._running.items():
            if process.poll():
                raise UserError(
                    f"{name} {_describe(process.returncode)}. The end of {self.log(name)}:\n{self._tail(name)}"
                )

    def has_ended(self, name: str) -> bool:
        """Whether a child has ended well. Raises UserError if any has failed."""
        self.check()
        return self._running[name].poll() is not None

    def wait(self, name: str, poll_s: float = 0.1) -> None:
        """Waits for the end of a child. Raises UserError if any fails meanwhile."""
        while not self.has_ended(name):
            time.sleep(poll_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        known = {process.pid: start_time(process.pid) for process in self._running.values() if process.poll() is None}
        try:
            end(known, PATIENCE_S)
        except KeyboardInterrupt:  # a second Ctrl-C ends all at once
            kill(known, PATIENCE_S)
        for process in self._running.values():
            process.wait()

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_bytes()[-(1 << 16) :].decode("utf-8", "replace").splitlines()
        return visible("\n".join(f"    {line}" for line in lines[-LAST_LINES:]))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _describe(status: int) -> str:
    return f"has ended with status {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
