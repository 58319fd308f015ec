"""Runs the engine on a separate thread.

PyTorch releases the GIL while it computes, so the event loop continues to serve. Every access to the engine or the
weights is a command to this thread, executed between two steps, so an update never overlaps a forward pass. Other
threads read sampled tokens directly from the `Request`s, whose lists only grow. The engine's thread only wakes the
tasks that wait for tokens.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions
from slimrl.types import SamplingParams

LOG = logging.getLogger(__name__)
STEP_S = 1.0  # seconds to wait for the current step when the thread must stop
MAX_PREFILL = 1024  # tokens per step, so that a long prompt does not delay the running streams
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way through the engine.

    `arrived` is set on the event loop: for every new token if `streams`, otherwise only when the job is done.
    """

    prompt: list[int]
    params: SamplingParams
    options: RequestOptions = PLAIN
    finished: Callable[[list[int]], bool] = lambda sampled: False
    streams: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    request: Request | None = None
    failed: bool = False
    seen: int = 0  # tokens that the waiting task was woken for
    is_done: bool = False  # no token will be added; may become True at any moment, so read it once per decision


class EngineThread:
    """Runs the engine that `make_engine` returns. All public methods must be called on the event loop.

    `ended` is True after `stop`, or after a failure from which the engine could not recover. Then every new job fails
    at once.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._commands: queue.SimpleQueue[tuple[Callable[[Engine], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: dict[Request, Job] = {}
        self._counted: set[Job] = set()  # running and waiting jobs; only the event loop uses it
        self._stopping = False
        self.loaded: Future[Engine] = Future()
        self.ended = False

    @property
    def num_open(self) -> int:
        """Return the number of running and waiting jobs."""
        return len(self._counted)

    @property
    def is_alive(self) -> bool:
        """True if the thread still runs."""
        return self._thread.is_alive()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; `loop` is the event loop on which waiting tasks are woken."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current step; open requests fail.

        Loading and a step cannot be interrupted. This method does not wait for loading, and waits at most `STEP_S` for
        a step. The daemon thread stops with the process.
        """
        self._stopping = True
        self._put(lambda engine: None)  # wakes the thread
        if self.loaded.done():
            self._thread.join(STEP_S)

    def submit(self, job: Job) -> None:
        """Queue a job; `job.arrived` reports its progress."""
        self._counted.add(job)
        self._put_for(job, self._submit)

    def close(self, job: Job) -> None:
        """Close a job. Every job must be closed. If the job is still running, its slot is free after the current
        step."""
        self._counted.discard(job)
        # The job may finish before the command runs. The command then does nothing.
        if not job.is_done:
            self._put_for(job, self._cancel)

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Run a function on the thread, between two steps, and return its result or raise its exception."""
        return await asyncio.wrap_future(self._put(function))

    def _put(self, function: Callable[[Engine], T]) -> "Future[T]":
        future: Future[T] = Future()
        self._commands.put((function, future))
        if self.ended:  # read after the put, so that either this thread or the engine's thread sees the command
            self._refuse_commands()
        return future

    def _put_for(self, job: Job, function: Callable[[Engine, Job], None]) -> None:
        """Queue the call `function(engine, job)` with `_put`. If the function fails, the job fails too."""

        def check(done: "Future[None]") -> None:
            if error := done.exception():
                if not self.ended:
                    LOG.error("the engine failed at a request", exc_info=error)
                self._lose([job])

        self._put(lambda engine: function(engine, job)).add_done_callback(check)

    def _refuse_commands(self) -> None:
        with suppress(queue.Empty):
            while True:
                _, future = self._commands.get_nowait()
                if future.set_running_or_notify_cancel():
                    future.set_exception(RuntimeError("the engine's thread has ended"))

    def _run(self) -> None:
        try:
            engine = self._make_engine()
        except BaseException as error:  # raised in the tasks that wait for the engine
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(engine)
        try:
            while not self._stopping:
                self._advance(engine)
        except BaseException:
            LOG.exception("the engine cannot go on after its failure: the server must be started again")
        finally:
            self.ended = True
            self._lose(self._open.values())
            self._refuse_commands()

    def _advance(self, engine: Engine) -> None:
        try:
            self._obey(engine)
            if engine.busy and not self._stopping:
                self._step(engine)
        except BaseException:  # a panic in a tokenizer is not an Exception
            LOG.exception("the engine failed; its requests are lost")
            # The jobs fail first, because the engine may fail again.
            lost, self._open = self._open, {}
            self._lose(lost.values())
            for request in lost:
                engine.cancel(request)
            engine.publish(engine.version)  # clears the cache, which the failed step may have left half written

    def _obey(self, engine: Engine) -> None:
        idle = not engine.busy
        while idle or not self._commands.empty():
            function, future = self._commands.get()
            idle = False
            # From here on the caller cannot cancel the command, so its result always has a receiver.
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function(engine))
            except BaseException as error:  # raised in the caller; a panic in a tokenizer is not an Exception
                future.set_exception(error)

    def _step(self, engine: Engine) -> None:
        engine.step(MAX_PREFILL)
        awake = []
        for request, job in list(self._open.items()):
            count = len(request.versions)
            if request.finish_reason is not None:
                del self._open[request]
                job.is_done = True
                awake.append(job)
            elif job.streams and count > job.seen:
                awake.append(job)
            job.seen = count
        self._wake(awake)

    def _submit(self, engine: Engine, job: Job) -> None:
        job.request = engine.submit(job.prompt, job.params, job.finished, job.options)
        self._open[job.request] = job

    def _cancel(self, engine: Engine, job: Job) -> None:
        if job.request is not None and job.request in self._open:
            del self._open[job.request]
            engine.cancel(job.request)

    def _lose(self, jobs: Collection[Job]) -> None:
        for job in jobs:
            job.failed = job.is_done = True
        self._wake(list(jobs))

    def _wake(self, jobs: list[Job]) -> None:
        def report() -> None:
            for job in jobs:
                if job.is_done:
                    self._counted.discard(job)
                job.arrived.set()

        if jobs:
            self._loop.call_soon_threadsafe(report)
