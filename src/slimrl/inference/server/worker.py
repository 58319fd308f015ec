"""The thread that owns the engine. Knows nothing of HTTP or text.

PyTorch gives up the interpreter's lock while it computes, so the event loop goes on serving. Whatever touches the
engine or the weights is a command to this thread, carried out between two steps; so an update never meets a running
forward. What was sampled is read from the `Request`s, which only grow; the thread merely wakes whoever waits for them.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from slimrl.inference.engine import Engine, EngineLoad
from slimrl.inference.scheduler import PLAIN, Request, RequestOptions
from slimrl.types import SamplingParams

LOG = logging.getLogger("slimrl.server")
MAX_PREFILL = 1024  # tokens a step, so that a long prompt does not hold up the streams that run
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way through the engine. `wake` is called on the event loop, for every new token if `streams`,
    else at the end."""

    prompt: list[int]
    params: SamplingParams
    options: RequestOptions = PLAIN
    finished: Callable[[list[int]], bool] = lambda sampled: False
    streams: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    request: Request | None = None
    failed: bool = False
    seen: int = 0
    queued_at: float = field(default_factory=time.monotonic)
    first_token_at: float = 0.0

    @property
    def done(self) -> bool:
        return self.failed or (self.request is not None and self.request.finish_reason is not None)


class EngineThread:
    """Runs the engine that `load` makes. `start` and all methods but `load` itself are called on the event loop."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load_engine = load
        self._commands: queue.SimpleQueue[Callable[[Engine], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: dict[Request, Job] = {}
        self._stopping = False
        self.loaded: Future[Engine] = Future()
        self.paused = False
        self.load = EngineLoad()
        self.num_open = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that it is in; requests still open fail."""
        self._commands.put(self._stop)
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Queue a job; it may be followed through `job.arrived`."""
        self.num_open += 1
        self._commands.put(lambda engine: self._submit(engine, job))

    def close(self, job: Job) -> None:
        """Every job's end, finished or given up; if it still runs, its slot is free after the present step."""
        self.num_open -= 1
        if not job.done:
            self._commands.put(lambda engine: self._cancel(engine, job))

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Have a function carried out between two steps; its result or exception is the call's."""
        future: Future[T] = Future()

        def command(engine: Engine) -> None:
            if not future.set_running_or_notify_cancel():
                return  # the caller has gone
            try:
                future.set_result(function(engine))
            except Exception as error:  # handed to the caller, whose business it is
                future.set_exception(error)

        self._commands.put(command)
        result: Awaitable[T] = asyncio.wrap_future(future)
        return await result

    async def pause(self) -> None:
        """Stop sampling; requests wait until `resume`."""
        await self.call(lambda engine: self._set_paused(True))

    async def resume(self) -> None:
        await self.call(lambda engine: self._set_paused(False))

    def _run(self) -> None:
        try:
            engine = self._load_engine()
        except BaseException as error:  # whoever waits for the engine raises it
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(engine)
        while not self._stopping:
            try:
                self._obey(engine)
                if engine.busy and not self.paused and not self._stopping:
                    self._step(engine)
            except Exception:  # the server outlives a failed step, as it outlives a failed request
                LOG.exception("the engine failed; its requests are lost")
                self._fail(engine)
                engine.publish(engine.version)  # what the failed step left in the cache is not to be trusted
            self.load = engine.load
        self._fail(engine)

    def _obey(self, engine: Engine) -> None:
        """Carry out the commands that wait; if there is nothing to compute, wait for one."""
        idle = self.paused or not engine.busy
        while idle or not self._commands.empty():
            self._commands.get()(engine)
            idle = False

    def _step(self, engine: Engine) -> None:
        engine.step(MAX_PREFILL)
        now = time.monotonic()
        awake = []
        for request, job in list(self._open.items()):
            count = len(request.versions)
            if count and not job.first_token_at:
                job.first_token_at = now
            if request.finish_reason is not None:
                del self._open[request]
                awake.append(job)
            elif job.streams and count > job.seen:
                awake.append(job)
            job.seen = count
        self._wake(awake)

    def _wake(self, jobs: list[Job]) -> None:
        if jobs:
            self._loop.call_soon_threadsafe(_set_all, jobs)

    def _submit(self, engine: Engine, job: Job) -> None:
        job.request = engine.submit(job.prompt, job.params, job.finished, job.options)
        self._open[job.request] = job

    def _cancel(self, engine: Engine, job: Job) -> None:
        if job.request in self._open:
            engine.cancel(job.request)
            del self._open[job.request]

    def _fail(self, engine: Engine) -> None:
        jobs = list(self._open.values())
        for job in jobs:
            assert job.request is not None
            engine.cancel(job.request)
            job.failed = True
        self._open.clear()
        self._wake(jobs)

    def _set_paused(self, paused: bool) -> None:
        self.paused = paused

    def _stop(self, engine: Engine) -> None:
        self._stopping = True


def _set_all(jobs: list[Job]) -> None:
    for job in jobs:
        job.arrived.set()
