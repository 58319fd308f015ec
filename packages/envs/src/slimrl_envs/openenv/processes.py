"""Starts an environment's server in a process of its own, and again when it has ended; it ends with this process."""

import json
import os
import select
import signal
import subprocess
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, visible
from slimrl_envs.openenv.hosted import HostedServer

PROGRAM = Path(__file__).with_name("serve.py")
START_S = 120.0  # for a server to import its environment
MAX_LINE = 1 << 16
NEEDED = frozenset({"openenv", "fastmcp", "fastapi", "uvicorn"})  # by which OpenEnv serves


class ProcessServer(HostedServer):
    """The server of `module:name`, run by `python`, which needs OpenEnv and not slimrl."""

    def __init__(self, place: str, python: str, num_sessions: int) -> None:
        super().__init__("server")
        self._place, self._python, self._num_sessions = place, python, num_sessions
        self._running: list[subprocess.Popen[bytes]] = []
        weakref.finalize(self, _end_all, self._running)

    def runs(self, url: str) -> bool:
        return bool(self._running) and self._running[-1].poll() is None

    def close(self) -> None:
        _end_all(self._running)

    def start(self) -> str:
        source = PROGRAM.read_text(encoding="utf-8")
        command = [self._python, "-c", source, self._place, str(self._num_sessions)]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise UserError(f"openenv: `python` = {self._python!r} cannot be run: {error.strerror}.") from error
        self._running.append(process)
        try:
            told = _first_line(process)
        except BaseException:
            _end_all(self._running)
            raise
        if "error" in told:
            _end_all(self._running)
            raise self._failure(visible(str(told["error"]), 1000), str(told.get("missing")).partition(".")[0] in NEEDED)
        self.sessions = told["sessions"]
        return f"http://127.0.0.1:{told['port']}"

    def _failure(self, error: str, is_missing: bool) -> UserError:
        if not is_missing:
            return UserError(f"openenv: the server of {self._place} cannot be started: {error}")
        return UserError(
            f"openenv: {self._python} lacks what OpenEnv needs ({error}), by which {self._place} is served. Its "
            "requirements can contradict those of other packages, so give it an environment of its own, `python -m "
            "venv envs/openenv && envs/openenv/bin/pip install openenv`, and name its Python: `python = "
            '"envs/openenv/bin/python"`.'
        )


def _first_line(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """What the program says first. Raises UserError if it says nothing."""
    assert process.stdout is not None
    line, deadline = b"", time.monotonic() + START_S
    with process.stdout as output:
        while not line.endswith(b"\n") and len(line) < MAX_LINE:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                raise UserError(f"openenv: the environment's server was not ready within {START_S:g} s.")
            part = os.read(output.fileno(), MAX_LINE)
            if not part:
                raise UserError("openenv: the environment's server ended before it was ready; it may have said why.")
            line += part
    told: dict[str, Any] = json.loads(line)
    return told


def _end_all(running: "list[subprocess.Popen[bytes]]") -> None:
    """Ends processes with the sessions that they lead: their children end with them."""
    while running:
        process = running.pop()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # it has nothing to save: its episodes are over
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
