"""The server of an environment: it runs at a URL already, or is started here, in a process or in a container.

A server that is started here ends with this process, and is restarted when it ends before. Its pages have the schema of
its actions, and its description.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, visible
from slimrl.io.http import HttpError, Peer, ask_once, is_healthy
from slimrl.io.urls import fault_of_base_url, is_http_url

URL = re.compile(r"(?:http|ws)(s?)://", re.IGNORECASE)
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
IMAGE = re.compile(r"docker/([a-z0-9][\w./:@-]*)")
FORMS = (
    "`openenv:http://HOST:PORT` or `openenv:ws://HOST:PORT` for a server that runs, `openenv:package.module:factory` "
    "for an environment class, a function that makes one or an app, `openenv:docker/IMAGE` for a container"
)
PAGE_S = 20.0
PROGRAM = Path(__file__).with_name("serve.py")
MAX_LINE_BYTES = 2**16
START_S = 120.0  # for a server to import its environment
NEEDED = frozenset({"openenv", "fastmcp", "fastapi", "uvicorn"})  # by which OpenEnv serves
ENGINES = ("docker", "podman")
PORT = 8000  # on which the servers of OpenEnv's images listen
COMMAND_S, PULL_S, READY_S = 60.0, 1800.0, 180.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs. `sessions` is the number that it allows at once, 0 if unknown; `end` stops it for good."""

    url: str
    sessions: int = 0
    is_alive: Callable[[], bool] = lambda: True
    end: Callable[[], object] = lambda: None


class Server:
    """The server that a name means. It is started when it is first needed, and restarted when it has ended."""

    def __init__(self, name: str, python: str = "", num_sessions: int = 1) -> None:
        """Raise UserError if the name means no server. `python` serves a class, for at most `num_sessions` at once."""
        self._start = _starter(name, python or sys.executable, num_sessions)
        self._starting = threading.Lock()
        self._running: Running | None = None
        self._end: Callable[[], object] = lambda: None

    @property
    def sessions(self) -> int:
        """The number of sessions that the running server allows at once; 0 if unknown."""
        return self._running.sessions if self._running else 0

    def url(self) -> str:
        """Return the server's address, and start it if it does not run. Raise UserError if it cannot be started."""
        with self._starting:
            if self._running is None or not self._running.is_alive():
                self.close()
                self._running = self._start()
                self._end = weakref.finalize(self, self._running.end)  # also at the exit of this process
            return self._running.url

    def close(self) -> None:
        """End the server if it was started here; a later `url` starts it again."""
        self._end()
        self._running = None


def _starter(name: str, python: str, num_sessions: int) -> Callable[[], Running]:
    """Return the function that starts the server of this name."""
    if URL.match(name):
        running = Running(base_url(name))
        return lambda: running
    if MODULE.fullmatch(name):
        return lambda: start_process(name, python, num_sessions)
    if image := IMAGE.fullmatch(name):
        return lambda: start_container(image[1])
    raise UserError(f"openenv: `{name:.200}` names no environment. Write {FORMS}.")


def base_url(url: str) -> str:
    """Return the address of a server's pages. Raise UserError for a URL with secrets, or without a host.

    >>> base_url("ws://127.0.0.1:8000/ws")
    'http://127.0.0.1:8000'
    """
    base = URL.sub(lambda scheme: f"http{scheme[1].lower()}://", url, count=1)
    if fault := fault_of_base_url(base):
        raise UserError(f"openenv: the address has {fault}, which files and messages would repeat. Remove it.")
    base = base.rstrip("/").removesuffix("/ws").rstrip("/")
    if not is_http_url(base):
        raise UserError(f"openenv: `{url:.200}` is no URL with a host and a port.")
    return base


def schema_of(base: str) -> dict[str, Any]:
    """Return the JSON schema of the server's actions. Raise UserError if it has none."""
    page = _page(base, "schema")
    action = page.get("action") if isinstance(page, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        found = visible(f"{page!r:.100}")
        raise UserError(f"openenv: {base}/schema has no schema of an action with `properties`, but {found}.")
    return action


def description_of(base: str) -> str:
    """Return the server's description of its environment; empty if it has none."""
    try:
        page = _page(base, "metadata")
    except HttpError:
        return ""
    text = page.get("description") if isinstance(page, dict) else None
    return visible(text, 4000) if isinstance(text, str) else ""


def _page(base: str, name: str) -> Any:
    """Return the JSON of a page. Raise HttpError for anything else: an error, a redirect, too much or too late."""
    return ask_once(Peer("OpenEnv server", base, advice="Start it, or mend the URL."), f"{base}/{name}", PAGE_S)


def start_process(place: str, python: str, num_sessions: int) -> Running:
    """Start the server of `module:name` by `python`, which needs OpenEnv and not slimrl. Raise UserError if it fails.

    `serve.py` ends the server and its children when this process ends, however it does.
    """
    command = [python, "-c", PROGRAM.read_text(encoding="utf-8"), place, str(num_sessions)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise UserError(f"openenv: `python` = {python!r} cannot be run: {error.strerror}.") from error
    assert process.stdout is not None
    # Its children hold the pipe too, so all of them are killed.
    overdue = threading.Timer(START_S, _kill_session, [process])
    overdue.daemon = True
    try:
        overdue.start()
        with process.stdout:
            ready = json.loads(process.stdout.readline(MAX_LINE_BYTES) or b"{}")
        if "port" not in ready:
            raise _failure(place, python, ready)
    except BaseException:
        _end_process(process)
        raise
    finally:
        overdue.cancel()
    url = f"http://127.0.0.1:{ready['port']}"
    return Running(url, ready["sessions"], lambda: process.poll() is None, lambda: _end_process(process))


def _failure(place: str, python: str, ready: dict[str, Any]) -> UserError:
    """Return the error of a program whose first line has no port; it is empty if the program wrote none."""
    said = f"it ended before it was ready, or was not ready within {START_S:g} s; it may have said why"
    error = visible(str(ready.get("error", said)), 1000)
    if str(ready.get("missing")).partition(".")[0] not in NEEDED:
        return UserError(f"openenv: the server of {place} cannot be started: {error}")
    return UserError(
        f"openenv: {python} lacks what OpenEnv needs ({error}), by which {place} is served. Its requirements can "
        "contradict those of other packages, so give it an environment of its own, `python -m venv envs/openenv && "
        'envs/openenv/bin/pip install openenv`, and name its Python: `python = "envs/openenv/bin/python"`.'
    )


def _end_process(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and the session that it leads, and wait for its end; it has nothing to save."""
    _kill_session(process)
    process.communicate()


def _kill_session(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def start_container(image: str) -> Running:
    """Start a container of an image, whose port only this machine reaches. Raise UserError if it fails."""
    engine = engine_of()
    if not engine:
        raise UserError(
            f"openenv: the image {image} needs Docker or Podman, and neither answers here (`docker info`, "
            "`podman info`). Install or start one, name a server that runs (`openenv:http://...`), or the "
            "environment's class (`openenv:module:Class`)."
        )
    container = _run(PULL_S, engine, "run", "--detach", "--rm", "--publish", f"127.0.0.1::{PORT}", image).split()[-1]

    def is_alive() -> bool:
        # The engine is asked: a server that is busy with a long step answers nobody, and has not ended.
        with suppress(subprocess.TimeoutExpired):  # a slow engine does not mean that the container has ended
            found = _call(COMMAND_S, engine, "inspect", "--format", "{{.State.Running}}", container)
            return found.stdout.strip() == "true"
        return True

    def end() -> None:
        _call(COMMAND_S, engine, "rm", "--force", container)

    try:
        ports = _run(COMMAND_S, engine, "port", container, f"{PORT}/tcp")
        url = f"http://127.0.0.1:{ports.split()[0].rpartition(':')[2]}"
        deadline = time.monotonic() + READY_S
        while not is_healthy(url, PAGE_S):
            if time.monotonic() > deadline:
                raise UserError(f"openenv: the container of {image} was not ready within {READY_S:g} s.")
            time.sleep(0.25)
    except BaseException:
        end()
        raise
    return Running(url, 0, is_alive, end)


def engine_of() -> str:
    """Return the first engine that answers, or an empty text. The command may be there without its service."""
    for engine in filter(shutil.which, ENGINES):
        with suppress(UserError):
            _run(COMMAND_S, engine, "info")
            return engine
    return ""


def _run(limit_s: float, *command: str) -> str:
    """Return the output of an engine's command. Raise UserError if it fails or prints nothing."""
    try:
        done = _call(limit_s, *command)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"openenv: `{' '.join(command)}` failed: {error}.") from error
    if done.returncode or not done.stdout.strip():
        shown = visible(done.stderr.strip(), 1000)
        raise UserError(f"openenv: `{' '.join(command)}` failed with status {done.returncode}: {shown}")
    return done.stdout


def _call(limit_s: float, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, errors="replace")
