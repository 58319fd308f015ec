"""A program that goes on in the background: started once, found again, and ended by whoever started it and nobody else.

What runs is remembered in a file beside its log, with the moment at which the process began: a number alone might by
now be another's. Knows nothing of what is served.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from slimrl.errors import UserError
from slimrl.models.store import cache_root, say

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
    """A process as it was started."""

    pid: int
    began: str
    about: str


def start(program: Program) -> None:
    """Start it in the background and wait until it is ready. Does nothing, and says so, if it runs already. Raises
    UserError if something else runs there, or it ends before it is ready."""
    if _is_there(program):
        return
    program.log.parent.mkdir(parents=True, exist_ok=True)
    say(f"starting {program.about}; log: {program.log}")
    with program.log.open("wb") as log:
        process = _spawn(program, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    moment = began(process.pid)
    try:
        _remember(program, Running(process.pid, moment, program.about))
        _wait_until_ready(program, process)
    except BaseException:  # Ctrl-C and a full disk too: what is not ready, or cannot be stopped, is of no use
        _end(process.pid, moment)
        process.wait()
        program.record.unlink(missing_ok=True)
        raise
    process.returncode = 0  # it is not ours to wait for any more: it goes on when we end
    say(f"ready at {program.url}{program.path}, process {process.pid}; to stop it: the same script with --stop")


def run(program: Program) -> int:
    """Run it in the foreground until it ends or Ctrl-C; its exit status. `stop` works from elsewhere."""
    if _is_there(program):
        return 0
    say(f"starting {program.about} at {program.url}{program.path}; Ctrl-C ends it")
    process = _spawn(program)
    try:
        _remember(program, Running(process.pid, began(process.pid), program.about))
        return process.wait()
    except KeyboardInterrupt:  # which the program gets too
        return process.wait()
    except OSError:  # what is not remembered cannot be stopped from elsewhere
        process.terminate()
        process.wait()
        raise
    finally:
        program.record.unlink(missing_ok=True)


def stop(name: str, port: int) -> bool:
    """End the one that was started under that name and port; False, and says so, if there is none."""
    program = Program(name, port, (), "")
    running = running_of(program)
    if running is None:
        program.record.unlink(missing_ok=True)
        say(f"no {name} that was started here runs on port {port}")
        return False
    _end(running.pid, running.began)
    program.record.unlink(missing_ok=True)
    say(f"stopped {running.about}, process {running.pid}")
    return True


def running_of(program: Program) -> Running | None:
    """The process that was started under this name and port, if it is still that one."""
    try:
        running = Running(**json.loads(program.record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return running if running.began and began(running.pid) == running.began else None


def began(pid: int) -> str:
    """When a process began, to the precision that the system has; empty if there is none, or it is dead already."""
    try:
        # The fields after the name, which may have brackets and spaces in it: the 1st is the state, the 20th the start.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, moment = shown.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else moment.strip()


def _is_there(program: Program) -> bool:
    running = running_of(program)
    if running is None:
        _refuse_taken(program)
        return False
    if running.about != program.about:
        raise UserError(
            f"process {running.pid} already runs there: {running.about}. That is not what was asked for: "
            f"{program.about}. End it first, by the same script with --stop, or give {program.setting} another port."
        )
    say(f"already runs: {running.about} at {program.url}{program.path}, process {running.pid}; log: {program.log}")
    return True


def _refuse_taken(program: Program) -> None:
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


def _remember(program: Program, running: Running) -> None:
    program.record.parent.mkdir(parents=True, exist_ok=True)
    program.record.write_text(json.dumps(asdict(running)), encoding="utf-8")


def _wait_until_ready(program: Program, process: "subprocess.Popen[bytes]") -> None:
    since = said = time.monotonic()
    while not _is_healthy(program.url):
        if process.poll() is not None:
            raise UserError(
                f"{program.about} ended with status {process.returncode} before it was ready. The end of its log, "
                f"{program.log}:\n{_tail(program.log)}"
            )
        if time.monotonic() - said > SAY_EVERY_S:
            said = time.monotonic()
            say(f"  {said - since:.0f} s, not ready yet: {_tail(program.log, 1):.100}")
        time.sleep(POLL_S)


def _is_healthy(url: str) -> bool:
    try:
        with DIRECTLY.open(f"{url}/health", timeout=5.0) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):  # not there yet, or 503 while it loads
        return False


def _tail(path: Path, lines: int = LOG_LINES) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _end(pid: int, moment: str) -> None:
    """SIGTERM to the process that began at the `moment`, and to what it started; after a while SIGKILL, if it is still
    there."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not moment or began(pid) != moment:  # it has ended, whoever may have its number now
            return
        _signal(pid, number)
        deadline = time.monotonic() + STOP_S
        while began(pid) == moment and time.monotonic() < deadline:
            time.sleep(0.05)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        if os.getpgid(pid) == pid:  # in the background it leads a group of its own
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def _directory() -> Path:
    return cache_root() / "servers"
