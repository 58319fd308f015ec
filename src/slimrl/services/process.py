"""A program that goes on in the background: started once, found again, and ended by whoever started it and nobody else.

What runs is remembered in a file beside its log. Knows nothing of what is served.
"""

import http.client
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from filelock import FileLock, Timeout

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.services.process_tree import end, find_process_tree, processes, start_time

STOP_S = 20.0
POLL_S = 0.25
SAY_EVERY_S = 10.0
LOG_LINES = 15
DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy for the web is none for this machine


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `name` and `port` say which it is, of those that this machine may run side by side; `about` what it
    serves and how, in words, so that a start with other settings is noticed. Its `health` is 200 when it is ready."""

    name: str
    port: int
    command: Sequence[str]
    about: str
    environment: Mapping[str, str] = field(default_factory=dict)
    setting: str = "JUDGE_BASE_URL"  # where the port stands
    path: str = "/v1"  # behind the address, of what is served

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def record(self) -> Path:
        return _directory() / f"{self.name}-{self.port}.json"

    @property
    def log(self) -> Path:
        return self.record.with_suffix(".log")


@dataclass(frozen=True, slots=True)
class Running:
    """A process as it was started, and whom else it had started when it was ready: they may outlive it."""

    pid: int
    began: str
    about: str
    others: Mapping[int, str] = field(default_factory=dict)

    @property
    def start_times(self) -> dict[int, str]:
        return {**self.others, self.pid: self.began}


def start(program: Program) -> None:
    """Start it in the background and wait until it is ready; if it runs already, wait for that, and say so. Raises
    UserError if something else runs there, or it ends before it is ready."""
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
                _end(running)  # what it has left behind; before `wait` gives its number away
                raise _early_end_error(program, f" with status {process.wait()}")
            _write_record(program, replace(running, others=find_process_tree(running.start_times)))
        except BaseException:  # Ctrl-C and a full disk too: what is not ready, or cannot be stopped, is of no use
            _discard(program, process, running)
            raise
    process.returncode = 0  # it is not ours to wait for any more: it goes on when we end
    say(f"ready at {program.url}{program.path}, process {process.pid}; to stop it: the same script with --stop")


def run(program: Program) -> int:
    """Run it in the foreground until it ends or Ctrl-C; its exit status. `stop` works from elsewhere."""
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
        except BaseException:  # what is not remembered cannot be stopped from elsewhere
            _discard(program, process, running)
            raise
    try:
        return _wait_for_exit(process)
    finally:
        _discard(program, process, running)  # if it is still there: Ctrl-C a second time


def stop(name: str, port: int) -> bool:
    """End the one that was started under that name and port, with all that it has started; False, and says so, if there
    is none. Raises UserError if it cannot be ended."""
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
    """The one that runs already. Raises UserError if it is another, or the port is taken."""
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
    with socket.socket() as probe:
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
    """Even of one that has ended already: a child has its number, and its moment, until it is waited for."""
    return Running(process.pid, processes(process.pid)[process.pid].began, program.about)


@contextmanager
def _hold_lock(program: Program) -> Iterator[None]:
    """Hold a lock, so that of several starts at once one goes first and the others find what it has started."""
    program.record.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(program.record.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("it is being started at this moment; waiting for that")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write_record(program: Program, running: Running) -> None:
    new = program.record.with_suffix(".new")  # so that `stop` never reads half of it
    new.write_text(json.dumps(asdict(running)), encoding="utf-8")
    new.replace(program.record)


def _read_record(program: Program) -> Running | None:
    try:
        running = Running(**json.loads(program.record.read_text(encoding="utf-8")))
        others = {int(pid): moment for pid, moment in running.others.items()}  # JSON has texts for keys
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return replace(running, others=others) if running.began else None


def _wait_until_ready(program: Program, running: Running) -> bool:
    """Waits until it is, or has ended."""
    since = said = time.monotonic()
    while not _is_healthy(program.url):
        if start_time(running.pid) != running.began:
            return False
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"  {said - since:.0f} s, not ready yet: {_tail(program.log, 1):.100}")
        time.sleep(POLL_S)
    return True


def _early_end_error(program: Program, how: str) -> UserError:
    return UserError(
        f"{program.about} ended{how} before it was ready. The end of its log, {program.log}:\n{_tail(program.log)}"
    )


def _wait_for_exit(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:  # which the program gets too
        return process.wait()


def _is_healthy(url: str) -> bool:
    try:
        with DIRECTLY.open(f"{url}/health", timeout=5.0) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError, http.client.HTTPException):  # not there yet, or 503 while it loads
        return False


def _tail(path: Path, lines: int = LOG_LINES) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _discard(program: Program, process: "subprocess.Popen[bytes]", running: Running) -> None:
    _end(running)
    process.wait()
    program.record.unlink(missing_ok=True)


def _end(running: Running) -> str:
    """Who had to be killed, in words; empty if nobody. Raises UserError if even that was in vain."""
    killed, left = end(running.start_times, STOP_S)
    if left:
        raise UserError(
            f"process {', '.join(map(str, left))} of {running.about} does not end, even when it is killed: it waits "
            "for a device or a disk, or is another user's. Try again later."
        )
    return ", ".join(map(str, killed))


def _directory() -> Path:
    return cache_root() / "servers"
