"""The server of an environment, which already runs at a URL or is started by this module in a separate process.

A server that this module started is killed when this process exits. If the server itself exits earlier, it is
restarted. A server has pages with the schema of the actions and with a description of the environment.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, visible
from slimrl.io.http import HttpError, Peer, ask_once
from slimrl.io.urls import fault_of_base_url, is_http_url

URL = re.compile(r"(?:http|ws)(s?)://", re.IGNORECASE)
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
FORMS = (
    "`openenv:http://HOST:PORT` or `openenv:ws://HOST:PORT` for a server that runs, or `openenv:package.module:app` "
    "for an app that `create_app` has made. A container is started by `docker run --publish 127.0.0.1:8000:8000 "
    "IMAGE`, and named by its URL"
)
PAGE_S = 20.0
PROGRAM = Path(__file__).with_name("serve.py")
MAX_LINE_BYTES = 2**16
START_S = 120.0  # wait this long until a new server has imported its environment
NEEDED = frozenset({"openenv", "fastmcp", "fastapi", "uvicorn"})  # packages that OpenEnv needs to serve an app


class Server:
    """An environment server, given by its URL or by its app. The server of an app is started on first use, and
    restarted if it has exited."""

    def __init__(self, name: str, python: str = "") -> None:
        """Check `name`, which is a URL or `module:app`. Raise UserError for any other name. `python` runs the app."""
        if not URL.match(name) and not MODULE.fullmatch(name):
            raise UserError(f"openenv: `{name:.200}` names no environment. Write {FORMS}.")
        self._url = base_url(name) if URL.match(name) else ""
        self._is_ours = not self._url
        self._program = name, python or sys.executable
        self._starting = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None

    def url(self) -> str:
        """Return the server's address. Start the server of an app if it does not run. Raise UserError if the start
        fails."""
        with self._starting:
            if self._is_ours and (self._process is None or self._process.poll() is not None):
                self.close()
                self._process, port = start_process(*self._program)
                self._url = f"http://127.0.0.1:{port}"
                self._end = weakref.finalize(self, _end_process, self._process)  # also at the exit of this process
            return self._url

    def close(self) -> None:
        """Stop the server if this object started it. A later call of `url` starts it again."""
        self._end()
        self._process = None


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
    """Return the JSON schema of the actions of the server at `base`. Raise UserError if the server has none."""
    page = _page(base, "schema")
    action = page.get("action") if isinstance(page, dict) else None
    if not isinstance(action, dict) or not isinstance(action.get("properties"), dict):
        found = visible(f"{page!r:.100}")
        raise UserError(f"openenv: {base}/schema has no schema of an action with `properties`, but {found}.")
    return action


def description_of(base: str) -> str:
    """Return the environment's description from the server at `base`. Return an empty text if the server has none."""
    try:
        page = _page(base, "metadata")
    except HttpError:
        return ""
    text = page.get("description") if isinstance(page, dict) else None
    return visible(text, 4000) if isinstance(text, str) else ""


def _page(base: str, name: str) -> Any:
    """Return the JSON of the server's page `name`. Raise HttpError for an error, a redirect, a reply that is too large,
    and a reply that takes longer than `PAGE_S` seconds."""
    return ask_once(Peer("OpenEnv server", base, advice="Start it, or mend the URL."), f"{base}/{name}", PAGE_S)


def start_process(place: str, python: str) -> "tuple[subprocess.Popen[bytes], int]":
    """Start the server of the app `place`, which is `module:name`, and return its process and its port. `python` needs
    OpenEnv, but not slimrl. Raise UserError if the start fails.

    `serve.py` kills the server and its children when this process exits for any reason.
    """
    command = [python, "-c", PROGRAM.read_text(encoding="utf-8"), place]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise UserError(f"openenv: `python` = {python!r} cannot be run: {error.strerror}.") from error
    assert process.stdout is not None
    try:
        with process.stdout:
            has_line, *_ = select.select([process.stdout], [], [], START_S)
            line = process.stdout.readline(MAX_LINE_BYTES) if has_line else b""
        ready: dict[str, Any] = json.loads(line or b"{}")
        if "port" not in ready:
            raise _failure(place, python, ready)
    except BaseException:
        _end_process(process)
        raise
    return process, ready["port"]


def _failure(place: str, python: str, ready: dict[str, Any]) -> UserError:
    """Return the error for a start without a port. `ready` is the object that `serve.py` printed; empty without
    output."""
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
    """Kill a process and its session at once, because the process has no data to save. Wait until it has exited."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
