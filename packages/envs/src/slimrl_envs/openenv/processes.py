"""Starts the server of an environment in a process of its own, which ends with this process."""

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, visible
from slimrl_envs.openenv.server import Running

PROGRAM = Path(__file__).with_name("serve.py")
START_S = 120.0  # for a server to import its environment
MAX_LINE = 1 << 16
NEEDED = frozenset({"openenv", "fastmcp", "fastapi", "uvicorn"})  # by which OpenEnv serves


def start_process(place: str, python: str, num_sessions: int) -> Running:
    """Start the server of `module:name` by `python`, which needs OpenEnv and not slimrl. Raises UserError if it fails.

    `serve.py` ends the server and its children when this process ends, however it does.
    """
    source = PROGRAM.read_text(encoding="utf-8")
    command = [python, "-c", source, place, str(num_sessions)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise UserError(f"openenv: `python` = {python!r} cannot be run: {error.strerror}.") from error
    try:
        ready = _first_line(process)
    except BaseException:
        _end(process)
        raise
    if "error" in ready:
        _end(process)
        raise _failure(place, python, ready)
    url = f"http://127.0.0.1:{ready['port']}"
    return Running(url, ready["sessions"], lambda: process.poll() is None, lambda: _end(process))


def _failure(place: str, python: str, ready: dict[str, Any]) -> UserError:
    error = visible(str(ready["error"]), 1000)
    if str(ready.get("missing")).partition(".")[0] not in NEEDED:
        return UserError(f"openenv: the server of {place} cannot be started: {error}")
    return UserError(
        f"openenv: {python} lacks what OpenEnv needs ({error}), by which {place} is served. Its requirements can "
        "contradict those of other packages, so give it an environment of its own, `python -m venv envs/openenv && "
        'envs/openenv/bin/pip install openenv`, and name its Python: `python = "envs/openenv/bin/python"`.'
    )


def _first_line(process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Read the first line of the program's output. Raises UserError if it does not write one in time."""
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
    ready: dict[str, Any] = json.loads(line)
    return ready


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and the session that it leads; it has nothing to save."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
