"""Controls a worker process: starts it, sends it requests, and kills it when it hangs. Every message of the worker is
checked, because the environment's code may have damaged the worker.

After a request, the run blocks until the worker answers, or reports that all its episodes wait for I/O. When a process
dies, `taskset.py` starts another process.
"""

import asyncio
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slimrl.errors import RolloutError, UserError, visible
from slimrl.rollout.worker.program import Start, start_here
from slimrl.rollout.worker.wire import REASON, WireError, receive_message, send_message

POLL_S = 0.5  # seconds between checks for the end of a process whose forks keep the connection open
GRACE_S = 2.0  # seconds in which a worker can interrupt its environment; then the worker is killed
CLOSE_S = 2.0  # seconds for a worker to clean up at the end of a run
NOTICE_S = 60.0  # seconds between two log messages during a wait
LOST = "environment_lost"  # drop reason of an episode whose process was ended by another episode
# Requests outside episodes, as phrases for messages, and their limits in seconds (see `ask`). `prepare` may build an
# index.
QUESTIONS = {
    "load": ("be made", 300.0),
    "describe": ("be described", 300.0),
    "prepare": ("be prepared", 7200.0),
    "tasks": ("give its tasks", 300.0),
    "script": ("play a script", 300.0),
    "offload": ("free memory", 300.0),
}
# Threads that wait for one of several workers while the other workers play.
_WAITING = ThreadPoolExecutor(64, "environments")


@dataclass(frozen=True, slots=True)
class Source:
    """The id and arguments of a taskset. `timeout_s` limits each call into an episode."""

    env_id: str
    args: Mapping[str, Any]
    timeout_s: float

    @property
    def call_s(self) -> float:
        """Seconds after which a call fails and the worker is killed. The worker tries to interrupt the call earlier,
        after `timeout_s`."""
        return self.timeout_s + min(GRACE_S, self.timeout_s)


Call = tuple[int, "Future[Any]"]  # a request to a worker: its number and its future answer


class WorkerProcess:
    """One worker process, started by the constructor. If the process ends, all open calls raise RolloutError. The
    reason is `environment_died` for the call that was running and LOST for the other calls. A call raises UserError if
    the worker reports a UserError."""

    def __init__(self, source: Source, start: Start = start_here, waits_alone: bool = False) -> None:
        """Start the process with `start`. Set `waits_alone` if several processes share the episodes. Then a computation
        in this process does not block the others."""
        self._source, self._waits_alone = source, waits_alone
        self._changed = threading.Condition()
        self._calls: dict[int, Future[Any]] = {}
        self._posted, self._quiet, self._heard = 0, 0, 0.0
        self._verdict: RolloutError | None = None
        self._culprits: Collection[int] = ()
        self.is_over = False  # True once the process has ended
        self._sending = threading.Lock()
        started: Future[None] = Future()
        # Linux kills the program when the thread that started it ends, so this thread lives as long as the program.
        threading.Thread(target=self._serve, args=(start, started), name="environment", daemon=True).start()
        started.result()
        self.pid = self._program.pid  # valid on the machine of the program

    @property
    def end(self) -> str:
        """The reason why the process ended, as text for messages."""
        return self._verdict.detail if self._verdict else "it was closed"

    def ask(self, do: str, **fields: Any) -> Any:
        """Send the request `do` with its `fields`, and return the worker's answer. Kill the process and raise
        RolloutError if the worker sends no message within the larger of the request's limit and `call_s`."""
        request, limit_s = QUESTIONS.get(do, ("answer", 0.0))
        number, answer = self._post(do, fields)
        self._wait(number, answer.done, max(limit_s, self._source.call_s), request)
        return answer.result()

    def ask_class(self, do: str, **fields: Any) -> Any:
        """Return the answer to a request about the environment class. Raise UserError if the process ends or takes too
        long."""
        try:
            return self.ask(do, **fields)
        except RolloutError as error:
            advice = ""
            if error.reason == "timeout" and do != "prepare":
                advice = f". What takes long belongs into its `prepare()`: its limit is {QUESTIONS['prepare'][1]:g} s"
            raise UserError(
                f"environment `{self._source.env_id}` could not {QUESTIONS[do][0]}: {error.detail}{advice}."
            ) from error

    async def call(self, do: str, **fields: Any) -> Any:
        """Return the answer to a request about an episode. Block other episodes while its environment computes."""
        number, answer = self._post(do, fields)
        try:
            await self._quiet_after(number)
            await _arrival(answer)
        except asyncio.CancelledError:
            if not self.is_over:
                await self._quiet_after(self._post("cancel", {"of": number}, is_answered=False)[0])
            await _arrival(answer)  # the environment may clean up, or refuse to be cancelled
            raise
        return answer.result()

    def close(self) -> None:
        """End the process and all its descendants."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        self._program.wait(CLOSE_S)
        self._program.kill()
        self._wait_for_end()

    async def _quiet_after(self, number: int) -> None:
        """Wait until the worker has started all calls up to `number` and no call computes."""
        waiting = (number, lambda: self._quiet >= number, self._source.call_s, "answer")
        if self._waits_alone:
            await asyncio.get_running_loop().run_in_executor(_WAITING, self._wait, *waiting)
        else:
            self._wait(*waiting)

    def _post(self, do: str, fields: dict[str, Any], is_answered: bool = True) -> Call:
        answer: Future[Any] = Future()
        with self._sending:
            with self._changed:
                self._posted += 1
                number = self._posted
                if self.is_over:
                    answer.set_exception(self._loss())
                    return number, answer
                if is_answered:
                    self._calls[number] = answer
            try:
                send_message(self._sock, {"call": number, "do": do, **fields})
            except BlockingIOError as error:
                raise self._give_up(number, self._source.call_s) from error
            except WireError as error:
                raise RolloutError("environment_error", f"a task is too large for its process: {error}") from error
            except OSError:  # the process has just ended, which the other thread reports
                pass
        return number, answer

    def _wait(self, number: int, is_done: Callable[[], bool], limit_s: float, request: str) -> None:
        """Wait until `is_done` or the end of the process, and log the wait every `NOTICE_S` seconds. If neither happens
        within `limit_s` seconds, kill the process and raise RolloutError. `request` is a phrase for messages."""
        began, since = time.monotonic(), time.strftime("%H:%M:%S")
        waiting = f"waiting since {since} for environment `{self._source.env_id}` to {request} (process {self.pid}"
        with self._changed:
            while not is_done() and not self.is_over:
                left = max(began, self._heard) + limit_s - time.monotonic()
                if left <= 0:
                    break
                if not self._changed.wait(min(left, NOTICE_S)) and left > NOTICE_S:
                    print(f"{waiting}; at most {limit_s:g} s)", file=sys.stderr, flush=True)
            else:
                return
        raise self._give_up(number, limit_s)

    def _wait_for_end(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_over, CLOSE_S)

    def _give_up(self, number: int, limit_s: float) -> RolloutError:
        """Kill the process because the call `number` took too long. Return the RolloutError of this call."""
        waited = f"the environment took longer than episode_timeout_s = {self._source.timeout_s:g} s"
        if limit_s != self._source.call_s:
            waited = f"the environment gave no answer for {limit_s:g} s (a longer `episode_timeout_s` extends this)"
        late = RolloutError("timeout", f"{waited}, and its process was ended")
        self._end([number], late)
        self._wait_for_end()
        return late

    def _end(self, culprits: Collection[int], verdict: RolloutError) -> None:
        """Kill the process. `culprits` are the calls that caused its end. `verdict` is the error that they raise."""
        with self._changed:
            self._culprits, self._verdict = self._culprits or culprits, self._verdict or verdict
        self._program.kill()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _loss(self) -> RolloutError:
        return RolloutError(LOST, f"the process that played it was ended, not by this episode: {self.end}")

    def _running(self) -> list[int]:
        """Return the numbers of the calls that the worker has not yet reported as waiting."""
        return [number for number in self._calls if number > self._quiet]

    # The methods below run in the reader thread.

    def _serve(self, start: Start, started: "Future[None]") -> None:
        try:
            self._sock, self._program = start()
            # Limit the time of a send, because a worker that hangs does not read its socket.
            limit = struct.pack("ll", 1 + int(self._source.call_s), 0)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        except BaseException as error:  # the waiting thread must receive every error
            if isinstance(error, OSError):
                error = UserError(f"no process can be started for an environment: {error.strerror or error}.")
            started.set_exception(error)
            return
        started.set_result(None)
        try:
            self._listen()
        except WireError as error:
            self._end([*self._calls], RolloutError("environment_died", f"its process was ended, as {error}"))
        except OSError:
            pass
        finally:
            self._bury()

    def _listen(self) -> None:
        """Receive the worker's messages until the connection closes. Raise WireError if a message is malformed."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while True:
            if poll.poll(POLL_S * 1000):
                message = receive_message(self._sock)
                if message is None:
                    return
                self._take(message)
            elif not self._program.is_running():
                return  # the program has ended, but its forks keep the connection open

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            match message:
                case {"quiet": int(number)} if self._quiet < number <= self._posted:
                    self._quiet = number
                case {"call": int(number), "answer": answer} if number in self._calls:
                    self._calls.pop(number).set_result(answer)
                case {"call": int(number), "failed": [str(reason), str(detail)]} if (
                    number in self._calls and REASON.fullmatch(reason)
                ):
                    self._calls.pop(number).set_exception(RolloutError(reason, detail))
                case {"call": int(number), "refused": str(text)} if number in self._calls:
                    self._calls.pop(number).set_exception(UserError(visible(text)))
                case _:
                    raise WireError("it sent what is no answer")
            self._heard = time.monotonic()
            self._changed.notify_all()

    def _bury(self) -> None:
        """Kill the process and its descendants. All open calls fail with the reason why the process ended."""
        deadline = time.monotonic() + POLL_S
        while self._program.is_running() and time.monotonic() < deadline:  # it is about to exit, so wait for its status
            time.sleep(0.01)
        if self._program.is_running() and self._verdict is None:
            self._verdict = RolloutError("environment_died", "the environment closed its connection to the run")
        self._program.kill()
        status = self._program.wait()
        self._program.close()  # its last output is shown before its end is reported
        with self._changed:
            self._verdict = self._verdict or RolloutError("environment_died", describe_end(status or 0))
            culprits = self._culprits or self._running() or [*self._calls]
            for number, answer in self._calls.items():
                answer.set_exception(self._verdict if number in culprits else self._loss())
            self._calls.clear()
            self.is_over = True
            self._changed.notify_all()
        self._sock.close()


def describe_end(status: int) -> str:
    """Return text that describes the end of a process. `status` is its exit status, or minus the signal number."""
    if status >= 0:
        return f"the environment ended its process with exit status {status}"
    name = signal.Signals(-status).name
    memory = ", which the kernel does when memory runs out" if name == "SIGKILL" else ""
    return f"the environment's process was ended by {name}{memory}"


async def _arrival(answer: "Future[Any]") -> None:
    """Wait for `answer`. If this wait is cancelled, `answer` is not cancelled."""
    if not answer.done():
        arrived = asyncio.wrap_future(answer)
        arrived.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller reads `answer` later
        await asyncio.wait([arrived])
