"""A worker process as the run sees it: started, asked, and ended when it hangs. What it sends is never trusted.

The run waits for the worker as it would for a function: until it answers, or says that it waits for something itself.
A process is used until it ends; then another one is started (`taskset.py`).
"""

import asyncio
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from slimrl.errors import RolloutError, UserError, visible
from slimrl.rollout.interruption import without_alarm
from slimrl.rollout.worker.wire import REASON, WireError, receive_message, send_message
from slimrl.services.process_tree import find_marked, kill, start_time

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from slimrl.rollout.worker.serve import main; main(int(sys.argv[2]))"
)
POLL_S = 0.5  # how soon the end of a process is noticed whose forks keep the connection open
GRACE_S = 2.0  # for a worker to interrupt its environment itself, before it is ended
CLOSE_S = 2.0  # for a worker to clean up at the end of a run
MAX_OUTPUT = 1 << 20  # bytes that a worker may print
MARK = "SLIMRL_WORKER"  # names the worker to which a process belongs, in its environment variables
LOST = "environment_lost"  # the reason of a drop by another episode's fault


@dataclass(eq=False)
class _Call:
    """A question to a worker, and what it has answered so far."""

    number: int
    takes_parts: bool
    answer: "Future[Any]" = field(default_factory=Future)
    parts: list[Any] = field(default_factory=list)


class WorkerProcess:
    """One worker process, started at once. Its calls raise RolloutError, with the reason `environment_died` for the one
    during which the process ended, and LOST for all others; and UserError where the worker does."""

    def __init__(self, timeout_s: float, variables: Mapping[str, str] | None = None) -> None:
        """`timeout_s` limits each call into an episode; `variables` are added to the process's environment."""
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._calls: dict[int, _Call] = {}
        self._posted, self._quiet, self._heard = 0, 0, 0.0
        self._culprits: set[int] = set()
        self._verdict: RolloutError | None = None
        self._is_over = False
        self._sending = threading.Lock()
        self._sock, theirs = socket.socketpair()
        # A worker that reads nothing is one that hangs.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 1 + int(self._limit_s), 0))
        self._known: dict[int, str] = {}
        self._mark = secrets.token_hex(8)
        started: Future[subprocess.Popen[bytes]] = Future()
        # Linux ends the process with the thread that has started it: with this one, which lives as long as it does.
        environment = {**os.environ, **(variables or {}), MARK: self._mark}
        serve = threading.Thread(
            target=self._serve, args=(theirs, environment, started), name="environment", daemon=True
        )
        serve.start()
        self._process = started.result()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self._is_over

    @property
    def end(self) -> str:
        """How the process has ended, in words."""
        return self._verdict.detail if self._verdict else "it was closed"

    def ask(self, do: str, limit_s: float | None = None, **fields: Any) -> Any:
        """The worker's answer, waited for at most `limit_s` seconds from its last sign of life, or without a limit."""
        call = self._post(do, fields)
        with without_alarm():
            if not self._wait(call.answer.done, limit_s):
                self._give_up(call, limit_s)
        return call.answer.result()

    def ask_episode(self, do: str, **fields: Any) -> Any:
        """The answer to a question about an episode that is no coroutine."""
        return self.ask(do, self._limit_s, **fields)

    async def call(self, do: str, **fields: Any) -> Any:
        """The answer to a question about an episode. Other episodes go on while the environment awaits something, and
        only then."""
        call = self._post(do, fields)
        self._wait_until_quiet(call)
        try:
            await _arrival(call)
        except asyncio.CancelledError:
            if not self._is_over:
                self._wait_until_quiet(self._post("cancel", {"of": call.number}, is_answered=False))
            await _arrival(call)  # its environment may clean up, or refuse to be cancelled
            raise
        return call.answer.result()

    def close(self) -> None:
        """Ends the process and all that it has started."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        kill(self._known, CLOSE_S)
        self._wait(lambda: False, CLOSE_S)

    @property
    def _limit_s(self) -> float:
        """The limit of a call into an episode, which the worker itself interrupts after `timeout_s` if it can."""
        return self._timeout_s + min(GRACE_S, self._timeout_s)

    def _wait_until_quiet(self, call: _Call) -> None:
        with without_alarm():
            if not self._wait(lambda: self._quiet >= call.number, self._limit_s):
                self._give_up(call, self._limit_s)

    def _post(self, do: str, fields: dict[str, Any], is_answered: bool = True) -> _Call:
        with self._sending:
            with self._changed:
                self._posted += 1
                call = _Call(self._posted, takes_parts=do == "tasks")
                if self._is_over:
                    call.answer.set_exception(self._loss())
                    return call
                if is_answered:
                    self._calls[call.number] = call
            try:
                send_message(self._sock, {"call": call.number, "do": do, **fields})
            except BlockingIOError:
                self._give_up(call, self._limit_s)
            except WireError as error:
                raise RolloutError("environment_error", f"a task is too large for its process: {error}") from error
            except OSError:  # it has just ended, which the other thread tells
                pass
        return call

    def _wait(self, is_done: Callable[[], bool], limit_s: float | None) -> bool:
        """Waits until something is done or the process has ended. Returns False if neither is so in time."""
        began = time.monotonic()
        with self._changed:
            while not is_done() and not self._is_over:
                left = None if limit_s is None else max(began, self._heard) + limit_s - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _give_up(self, call: _Call, limit_s: float | None) -> NoReturn:
        waited = f"the environment took longer than episode_timeout_s = {self._timeout_s:g} s"
        if limit_s != self._limit_s:
            waited = f"the environment gave no answer for {limit_s:g} s"
        late = RolloutError("timeout", f"{waited}, and its process was ended")
        self._end({call.number}, late)
        self._wait(lambda: False, CLOSE_S)
        raise late

    def _end(self, culprits: set[int], verdict: RolloutError) -> None:
        """Ends the process because of these calls."""
        with self._changed:
            self._culprits, self._verdict = self._culprits or culprits, self._verdict or verdict
        kill(self._known, CLOSE_S)
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _loss(self) -> RolloutError:
        return RolloutError(LOST, f"the process that played it was ended by another episode: {self.end}")

    # In a thread of its own.

    def _serve(
        self, theirs: socket.socket, environment: Mapping[str, str], started: "Future[subprocess.Popen[bytes]]"
    ) -> None:
        try:
            process, output = _start(theirs, environment)
            self._known[process.pid] = start_time(process.pid)
        except OSError as error:
            started.set_exception(UserError(f"no process can be started for an environment: {error.strerror}."))
            return
        except BaseException as error:  # nobody else would hear of it
            started.set_exception(error)
            return
        finally:
            theirs.close()
        started.set_result(process)
        try:
            self._listen(process)
        except WireError as error:
            self._end(set(self._calls), RolloutError("environment_died", f"its process was ended, as {error}"))
        except OSError:
            pass
        finally:
            self._bury(process, output)

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Takes what the worker sends until its end. Raises WireError for what it cannot have sent by itself."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while True:
            if poll.poll(POLL_S * 1000):
                message = receive_message(self._sock)
                if message is None:
                    return
                self._take(message)
            elif not start_time(process.pid):
                return  # its forks keep the connection open

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            match message:
                case {"quiet": int(number)} if self._quiet < number <= self._posted:
                    self._quiet = number
                case {"call": int(number), "part": list(part)} if (
                    number in self._calls and self._calls[number].takes_parts
                ):
                    self._calls[number].parts += part
                case {"call": int(number), "answer": answer} if number in self._calls:
                    call = self._calls.pop(number)
                    call.answer.set_result(call.parts if call.parts else answer)
                case {"call": int(number), "failed": [str(reason), str(detail)]} if (
                    number in self._calls and REASON.fullmatch(reason)
                ):
                    self._calls.pop(number).answer.set_exception(RolloutError(reason, detail))
                case {"call": int(number), "refused": str(text)} if number in self._calls:
                    self._calls.pop(number).answer.set_exception(UserError(visible(text)))
                case _:
                    raise WireError("it sent what is no answer")
            self._heard = time.monotonic()
            self._changed.notify_all()

    def _bury(self, process: "subprocess.Popen[bytes]", output: threading.Thread) -> None:
        """Ends what is left of the process, and answers all calls with what has become of it."""
        deadline = time.monotonic() + POLL_S
        while start_time(process.pid) and time.monotonic() < deadline:  # it is about to end, and shall say how
            time.sleep(0.01)
        if start_time(process.pid) and self._verdict is None:
            self._verdict = RolloutError("environment_died", "the environment closed its connection to the run")
        kill(self._known | find_marked(MARK, self._mark), CLOSE_S)
        status = process.wait()
        output.join(CLOSE_S)  # its last words come before what is said of its end
        with self._changed:
            self._verdict = self._verdict or RolloutError("environment_died", describe_end(status))
            running = {number for number in self._calls if number > self._quiet}
            self._culprits = self._culprits or running or set(self._calls)
            for number, call in self._calls.items():
                call.answer.set_exception(self._verdict if number in self._culprits else self._loss())
            self._calls.clear()
            self._is_over = True
            self._changed.notify_all()
        self._sock.close()


def describe_end(status: int) -> str:
    """How a process has ended, in words; `status` is its exit status, or the negative number of a signal."""
    if status >= 0:
        return f"the environment ended its process with exit status {status}"
    name = signal.Signals(-status).name
    memory = ", which the kernel does when memory runs out" if name == "SIGKILL" else ""
    return f"the environment's process was ended by {name}{memory}"


async def _arrival(call: _Call) -> None:
    """Waits for the answer of a call."""
    if call.answer.done():
        return
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()

    def wake(_answer: "Future[Any]") -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(_set, arrived)

    call.answer.add_done_callback(wake)
    await arrived


def _set(arrived: "asyncio.Future[None]") -> None:
    if not arrived.done():
        arrived.set_result(None)


def _start(theirs: socket.socket, environment: Mapping[str, str]) -> tuple["subprocess.Popen[bytes]", threading.Thread]:
    """Starts the program of a worker, which speaks through the socket, and a thread that copies what it prints to this
    standard error. All that the worker starts inherits the mark in its `environment`."""
    places = [place for place in sys.path if isinstance(place, str)]  # Python itself passes over a Path
    reads, writes = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM, json.dumps(places), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=writes,
            stderr=writes,
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
    except OSError:
        os.close(reads)
        raise
    finally:
        os.close(writes)
    output = threading.Thread(target=_show_output, args=(reads,), name="environment's output", daemon=True)
    output.start()
    return process, output


def _show_output(reads: int) -> None:
    """Copies what a worker prints to standard error, up to a limit, without what would command the terminal."""
    left = MAX_OUTPUT
    with open(reads, "rb", buffering=0) as file:
        while data := file.read(1 << 12):
            if left > 0:
                text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
                sys.stderr.write(visible(text, len(text)))
                left -= len(data)
                if left <= 0:
                    sys.stderr.write(f"\n[an environment has printed {MAX_OUTPUT} bytes; more is not shown]\n")
                sys.stderr.flush()
