"""Starts a server in the background, finds it again in a later process, and stops it with all its child processes.

The record of the server is in a file beside its log. An environment variable marks the server's processes. This module
works for any server. It also has the shared code of the scripts that start a server.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

from slimrl.errors import UserError, visible
from slimrl.io.cache import cache_root, say
from slimrl.io.files import replace_file
from slimrl.io.http import is_healthy
from slimrl.io.process_tree import end, find_marked, find_process_tree, processes, start_time
from slimrl.io.secrets import redact

MARK = "SERVER_OF_SLIMRL"  # the variable that a server's processes inherit
STOP_S = 20.0
POLL_S = 0.25
NOTICE_S = 10.0  # seconds between two notices about a server that is not ready
LOG_LINES = 15
HEALTH_S = 5.0  # timeout of one health check


@dataclass(frozen=True, slots=True)
class Program:
    """A server to run. `name` and `port` identify it among the servers of this machine.

    `about` describes the service and its settings. A start fails if a server with the same name and port but another
    `about` already runs. The server is ready when it answers `/health` with status 200. `after` is a command that
    removes leftovers, such as a container, after the process has exited.
    """

    name: str
    port: int
    command: Sequence[str] = ()
    about: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    setting: str = "JUDGE_BASE_URL"  # the variable that sets the port, for messages
    after: Sequence[str] = ()
    path: str = "/v1"  # of the served API, for messages

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def record(self) -> Path:
        """The file with the record of the running process."""
        return cache_root() / "servers" / f"{self.name}-{self.port}.json"

    @property
    def log(self) -> Path:
        """The file with the server's output."""
        return self.record.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class Running:
    """The record of a started process: its id and its start time."""

    pid: int
    began: str
    about: str
    after: Sequence[str] = ()


def start(program: Program, foreground: bool = False) -> int:
    """Start a server and return the exit status. If the server already runs, only wait until it is ready.

    Without `foreground`, return when the server is ready. With `foreground`, return when the server has exited, for
    example after Ctrl-C. Raises UserError if another program uses the port, or the server exits before it is ready.
    """
    program.record.parent.mkdir(parents=True, exist_ok=True)
    place = f"{program.url}{program.path}"
    if running := _find_running(program):
        _wait_until_ready(program, running)
        say(f"already runs: {running.about} at {place}, process {running.pid}; log: {program.log}")
        return 0
    say(f"starting {program.about}" + (f" at {place}; Ctrl-C ends it" if foreground else f"; log: {program.log}"))
    process = _spawn(program, foreground)
    # A child keeps its id and its time of start until it is reaped, even after its exit.
    running = Running(process.pid, processes(process.pid)[process.pid].began, program.about, program.after)
    is_ready = False
    try:
        replace_file(program.record, [json.dumps(asdict(running)).encode()], "SLIMRL_CACHE")
        if foreground:
            return process.wait()
        _wait_until_ready(program, running)
        is_ready = True
    finally:  # also after Ctrl-C or on a full disk: no unrecorded server may keep running
        if not is_ready:
            _end(program, running)
            process.wait()
            program.record.unlink(missing_ok=True)
    process.returncode = 0  # otherwise Popen would warn, when deleted, that a child still runs
    say(f"ready at {place}, process {process.pid}; to stop it: the same script with --stop")
    return 0


def stop(name: str, port: int) -> bool:
    """Stop the server with this name and port and all its children. Return True if it was running. Raises UserError if
    a process survives SIGKILL, or the server's leftovers cannot be removed."""
    program = Program(name, port)
    running = _read_record(program)
    if running is None or not (_tree(program, running) or running.after):
        program.record.unlink(missing_ok=True)
        say(f"no {name} that was started here runs on port {port}")
        return False
    _end(program, running)
    program.record.unlink(missing_ok=True)
    say(f"stopped {running.about}, process {running.pid}")
    return True


def make_parser(script: str, about: str) -> argparse.ArgumentParser:
    """Return a parser with the flags `--stop` and `--foreground`, of which only one may be given."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=script, description=about, formatter_class=raw)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", action="store_true", help="end the server that this script started")
    what.add_argument("-f", "--foreground", action="store_true", help="stay, and show what the server says")
    return parser


def start_or_stop(arguments: argparse.Namespace, name: str, port: int, program: Callable[[], Program]) -> int:
    """Start the program, or stop the server with this name and port, depending on the flags. Return the exit status.

    `program` is called only for a start, since it may download gigabytes. Raises UserError.
    """
    if arguments.stop:
        return 0 if stop(name, port) else 1
    return start(program(), arguments.foreground)


def run_script(main: Callable[[Sequence[str]], int], interrupted: str = "nothing was left running") -> NoReturn:
    """Call `main` with the command line, and exit with the returned status. After a UserError, print its message and
    exit with 2. After Ctrl-C, print `interrupted` and exit with 130."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(redact(visible(f"error: {error}")), file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        sys.exit(130)


def _find_running(program: Program) -> Running | None:
    """Return the record of the server if it runs. Otherwise stop the processes that an earlier start left behind, and
    return None.

    Raises UserError if the server runs with other settings, or another program uses the port.
    """
    running = _read_record(program)
    if running is None or start_time(running.pid) != running.began:
        if running is not None:
            _end(program, running)
        _check_port(program)
        return None
    if running.about != program.about:
        raise UserError(
            f"process {running.pid} already runs there: {running.about}. That is not what was asked for: "
            f"{program.about}. End it first, by the same script with --stop, or give {program.setting} another port."
        )
    return running


def _check_port(program: Program) -> None:
    """Raise UserError if another program listens on the port."""
    try:
        socket.create_server(("127.0.0.1", program.port)).close()
    except OSError as error:
        raise UserError(
            f"port {program.port} cannot be used ({error.strerror}): another program has it. End that one, or give "
            f"{program.setting} another port."
        ) from error


def _spawn(program: Program, foreground: bool) -> "subprocess.Popen[bytes]":
    """Start the process. In the background it gets a new session, and its output is written to the log."""
    environment = {**os.environ, **program.environment, MARK: str(program.record)}
    with nullcontext() if foreground else program.log.open("wb") as log:
        try:
            return subprocess.Popen(
                program.command,
                env=environment,
                start_new_session=not foreground,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        except OSError as error:
            raise UserError(f"{program.command[0]} cannot be run: {error.strerror}.") from error


def _read_record(program: Program) -> Running | None:
    """Return the record of a started server; None without a readable record."""
    try:
        return Running(**json.loads(program.record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _wait_until_ready(program: Program, running: Running) -> None:
    """Wait until the server is ready. Raises UserError if its process exits first."""
    began = noted = time.monotonic()
    while not is_healthy(program.url, HEALTH_S):
        if start_time(running.pid) != running.began:
            _end(program, running)  # its children may run on
            raise UserError(
                f"{program.about} ended before it was ready. The end of its log, {program.log}:\n"
                f"{_tail(program.log, LOG_LINES)}"
            )
        if (now := time.monotonic()) - noted >= NOTICE_S:
            noted = now
            say(f"  {now - began:.0f} s, not ready yet: {_tail(program.log, 1):.100}")
        time.sleep(POLL_S)


def _tail(path: Path, lines: int) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _tree(program: Program, running: Running) -> dict[int, str]:
    """Return the running processes of the server, including all descendants: a dict from process id to start time."""
    return find_process_tree({running.pid: running.began, **find_marked(MARK, str(program.record))})


def _end(program: Program, running: Running) -> None:
    """Kill the processes of a server and remove its leftovers. Raises UserError if a process survives, or the command
    for leftovers fails."""
    _, left = end(_tree(program, running), STOP_S)
    if left:
        raise UserError(
            f"process {', '.join(map(str, left))} of {running.about} does not end, even when it is killed: it waits "
            "for a device or a disk, or is another user's. Try again later."
        )
    if running.after:
        done = subprocess.run(running.after, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(
                f"{running.about} may still run: `{' '.join(running.after)}` ended with status {done.returncode}: "
                f"{(done.stderr or done.stdout).strip()[-500:]}"
            )
