"""The module starts a program in the background, finds it again in a later process, and ends it with all its children.

A record of what runs is kept in a file beside its log. The module knows nothing of what is served.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.http import is_healthy
from slimrl.io.locks import hold_lock
from slimrl.io.process_tree import end, find_process_tree, processes, start_time
from slimrl_search.services.progress import ProgressLine

STOP_S = 20.0
POLL_S = 0.25
LOG_LINES = 15
HEALTH_S = 5.0  # for one look at whether a program is ready


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run. `name` and `port` identify it among those of this machine.

    `about` says in words what it serves and with which settings, so that a start with other settings is noticed. The
    program is ready when it answers `/health` with status 200.
    """

    name: str
    port: int
    command: Sequence[str]
    about: str
    environment: Mapping[str, str] = field(default_factory=dict)
    setting: str = "JUDGE_BASE_URL"  # the variable that sets the port, for messages
    path: str = "/v1"  # of the served API, for messages

    @property
    def url(self) -> str:
        """The server's address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def record(self) -> Path:
        """The file with the record of the process that runs."""
        return _directory() / f"{self.name}-{self.port}.json"

    @property
    def log(self) -> Path:
        """The file with the program's output."""
        return self.record.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class Running:
    """The record of a started process. `others` are the processes that it had started itself by the time it was ready:
    they may outlive it."""

    pid: int
    began: str
    about: str
    others: Mapping[int, str] = field(default_factory=dict)

    @property
    def start_times(self) -> dict[int, str]:
        """The time of start of each recorded process, by process id."""
        return {**self.others, self.pid: self.began}


def start(program: Program) -> None:
    """Start a program in the background and wait until it is ready; one that runs already is only waited for.

    Raises:
        UserError: if another program has the port, or this one ends before it is ready.
    """
    with _hold_lock(program):
        running = _find_running(program)
        if running is not None:
            if not _wait_until_ready(program, running):
                raise _early_end_error(program, "")
            place = f"{program.url}{program.path}, process {running.pid}; log: {program.log}"
            say(f"already runs: {running.about} at {place}")
            return
        say(f"starting {program.about}; log: {program.log}")
        with program.log.open("wb") as log:
            process = _spawn(program, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        running = _make_record(program, process)
        try:
            _write_record(program, running)
            if not _wait_until_ready(program, running):
                _end(running)  # its children; before `wait`, after which the kernel may reuse its process id
                raise _early_end_error(program, f" with status {process.wait()}")
            _write_record(program, replace(running, others=find_process_tree(running.start_times)))
        except BaseException:  # Ctrl-C and a full disk too: nothing may stay that is not ready or not recorded
            _discard(program, process, running)
            raise
    process.returncode = 0  # else Popen would warn, when collected, of a child that still runs; it is meant to
    say(f"ready at {program.url}{program.path}, process {process.pid}; to stop it: the same script with --stop")


def run(program: Program) -> int:
    """Run a program in the foreground until it ends or Ctrl-C is pressed, and return its exit status.

    `stop`, called by another process, ends it too. Raises UserError as `start` does.
    """
    with _hold_lock(program):
        running = _find_running(program)
        if running is not None:
            say(f"already runs: {running.about} at {program.url}{program.path}, process {running.pid}")
            return 0
        say(f"starting {program.about} at {program.url}{program.path}; Ctrl-C ends it")
        process = _spawn(program)
        running = _make_record(program, process)
        try:
            _write_record(program, running)
        except BaseException:  # without a record, no other process could stop it
            _discard(program, process, running)
            raise
    try:
        return _wait_for_exit(process)
    finally:
        _discard(program, process, running)  # after a second Ctrl-C it may still run


def stop(name: str, port: int) -> bool:
    """End the program of that name and port with all its children; return whether there was one.

    Raises:
        UserError: if a process survives even SIGKILL.
    """
    program = Program(name, port, (), "")
    running = _read_record(program)
    if running is None or not find_process_tree(running.start_times):
        program.record.unlink(missing_ok=True)
        say(f"no {name} that was started here runs on port {port}")
        return False
    killed = _end(running)
    program.record.unlink(missing_ok=True)
    how = f"; killed, as they did not end when asked to: {killed}" if killed else ""
    say(f"stopped {running.about}, process {running.pid}{how}")
    return True


def _find_running(program: Program) -> Running | None:
    """The record of the program if it runs already, else None.

    Raises:
        UserError: if it runs with other settings, its children have outlived it, or another program has the port.
    """
    running = _read_record(program)
    if running is None or not find_process_tree(running.start_times):
        _check_port(program)
        return None
    if start_time(running.pid) != running.began:
        left = ", ".join(map(str, sorted(find_process_tree(running.start_times))))
        raise UserError(
            f"{running.about} has ended, but processes that it had started run still: {left}. End them first, by the "
            "same script with --stop."
        )
    if running.about != program.about:
        raise UserError(
            f"process {running.pid} already runs there: {running.about}. That is not what was asked for: "
            f"{program.about}. End it first, by the same script with --stop, or give {program.setting} another port."
        )
    return running


def _check_port(program: Program) -> None:
    """Raise UserError if another program listens on the port."""
    with socket.socket() as probe:
        # Connections of a server that has just ended linger for a minute (TIME_WAIT) and must not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", program.port))
        except OSError as error:
            raise UserError(
                f"port {program.port} cannot be used ({error.strerror}): another program has it. End that one, or give "
                f"{program.setting} another port."
            ) from error


def _spawn(program: Program, **how: object) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(program.command, env={**os.environ, **program.environment}, **how)  # type: ignore[call-overload,no-any-return]
    except OSError as error:
        raise UserError(f"{program.command[0]} cannot be run: {error.strerror}.") from error


def _make_record(program: Program, process: "subprocess.Popen[bytes]") -> Running:
    """The record of a new process, even if it has ended: a child keeps its id and time of start until it is reaped."""
    return Running(process.pid, processes(process.pid)[process.pid].began, program.about)


@contextmanager
def _hold_lock(program: Program) -> Iterator[None]:
    """Hold the program's lock: of several starts at once, one goes first and the others find what it has started."""
    program.record.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(program.record.with_suffix(".lock"), "starting it", say):
        yield


def _write_record(program: Program, running: Running) -> None:
    new = program.record.with_suffix(".new")  # written aside and renamed: `stop` never reads half of a record
    new.write_text(json.dumps(asdict(running)), encoding="utf-8")
    new.replace(program.record)


def _read_record(program: Program) -> Running | None:
    try:
        running = Running(**json.loads(program.record.read_text(encoding="utf-8")))
        others = {int(pid): began for pid, began in running.others.items()}  # keys of a JSON object are strings
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return replace(running, others=others) if running.began else None


def _wait_until_ready(program: Program, running: Running) -> bool:
    """Wait until the program is ready; return False if it has ended first."""
    line = ProgressLine()
    try:
        while not is_healthy(program.url, HEALTH_S):
            if start_time(running.pid) != running.began:
                return False
            line.show(f"  {line.seconds:.0f} s, not ready yet: {_tail(program.log, 1):.100}")
            time.sleep(POLL_S)
        return True
    finally:
        line.end()


def _early_end_error(program: Program, how: str) -> UserError:
    return UserError(
        f"{program.about} ended{how} before it was ready. The end of its log, {program.log}:\n{_tail(program.log)}"
    )


def _wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:  # the terminal sends Ctrl-C to the program too, so it ends by itself
        return process.wait()


def _tail(path: Path, lines: int = LOG_LINES) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _discard(program: Program, process: "subprocess.Popen[bytes]", running: Running) -> None:
    _end(running)
    process.wait()
    program.record.unlink(missing_ok=True)


def _end(running: Running) -> str:
    """End the processes of a record; return the ids of those that needed SIGKILL, joined by commas.

    Raises:
        UserError: if a process survives SIGKILL.
    """
    killed, left = end(running.start_times, STOP_S)
    if left:
        raise UserError(
            f"process {', '.join(map(str, left))} of {running.about} does not end, even when it is killed: it waits "
            "for a device or a disk, or is another user's. Try again later."
        )
    return ", ".join(map(str, killed))


def _directory() -> Path:
    return cache_root() / "servers"
