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
    """One request on its way through the engine. `arrived` is set on the event loop, for every new token if `streams`,
    else at the end. `counted` says that it is among those that run or wait."""

    prompt: list[int]
    params: SamplingParams
    options: RequestOptions = PLAIN
    finished: Callable[[list[int]], bool] = lambda sampled: False
    streams: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    request: Request | None = None
    failed: bool = False
    counted: bool = False
    seen: int = 0
    first_token_at: float = 0.0
    finished_at: float = 0.0

    @property
    def is_done(self) -> bool:
        """Nothing will be added. It may become true at any moment: whoever decides by it twice reads it once."""
        return self.failed or self.finished_at > 0.0


@dataclass(frozen=True, slots=True)
class Command:
    """What the thread is to do. `drop` tells whoever waits for it that it was not done."""

    run: Callable[[Engine], None]
    drop: Callable[[], None] = lambda: None


class EngineThread:
    """Runs the engine that `make_engine` makes. `start` and all other methods are called on the event loop.

    `num_open` counts the jobs that run or wait. Once the thread has `ended`, by `stop` or because not even the
    treatment of a failure succeeded, every job fails at once.
    """

    def __init__(self, make_engine: Callable[[], Engine]) -> None:
        self._make_engine = make_engine
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._ending = threading.Lock()  # between a last command and the end
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._open: dict[Request, Job] = {}
        self._stopping = False
        self.loaded: Future[Engine] = Future()
        self.ended = False
        self.paused = False
        self.load = EngineLoad()
        self.num_open = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that it is in; requests still open fail. Loading cannot be broken off: then
        this does not wait, and the thread goes down with the process."""
        self._put(Command(self._stop))
        if self.loaded.done():
            self._thread.join()

    def submit(self, job: Job) -> None:
        """Queue a job; it may be followed through `job.arrived`."""
        self.num_open += 1
        job.counted = True
        self._put(Command(lambda engine: self._submit(engine, job), lambda: self._lose([job])))

    def close(self, job: Job) -> None:
        """Every job's end, finished or given up; if it still runs, its slot is free after the present step."""
        self._count_off(job)
        if not job.is_done:
            self._put(Command(lambda engine: self._cancel(engine, job)))

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Have a function carried out between two steps; its result or exception is the call's."""
        future: Future[T] = Future()

        def run(engine: Engine) -> None:
            if not future.set_running_or_notify_cancel():
                return  # the caller has gone
            try:
                future.set_result(function(engine))
            except BaseException as error:  # handed to the caller, whose business it is
                future.set_exception(error)

        def drop() -> None:
            if future.set_running_or_notify_cancel():
                future.set_exception(RuntimeError("the engine's thread has ended"))

        self._put(Command(run, drop))
        result: Awaitable[T] = asyncio.wrap_future(future)
        return await result

    async def pause(self) -> None:
        """Stop sampling; requests wait until `resume`."""
        await self.call(lambda engine: self._set_paused(True))

    async def resume(self) -> None:
        await self.call(lambda engine: self._set_paused(False))

    def _put(self, command: Command) -> None:
        with self._ending:
            if not self.ended:
                self._commands.put(command)
                return
        command.drop()

    def _run(self) -> None:
        try:
            engine = self._make_engine()
        except BaseException as error:  # whoever waits for the engine raises it
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(engine)
        try:
            while not self._stopping:
                self._advance(engine)
        except BaseException:
            LOG.exception("the engine cannot go on after its failure: the server must be started again")
        finally:
            self._end()

    def _advance(self, engine: Engine) -> None:
        """The commands that wait, and a step. The server outlives a failure of either, as it outlives a failed
        request."""
        try:
            self._obey(engine)
            if engine.busy and not self.paused and not self._stopping:
                self._step(engine)
        except BaseException:  # a tokenizer that panics raises no Exception
            LOG.exception("the engine failed; its requests are lost")
            self._fail(engine)
            engine.publish(engine.version)  # what the failed step left in the cache is not to be trusted
        self.load = engine.load

    def _obey(self, engine: Engine) -> None:
        """Carry out the commands that wait; if there is nothing to compute, wait for one."""
        idle = self.paused or not engine.busy
        while idle or not self._commands.empty():
            command = self._commands.get()
            try:
                command.run(engine)
            except BaseException:
                command.drop()
                raise
            idle = False

    def _step(self, engine: Engine) -> None:
        engine.step(MAX_PREFILL)
        self.load = engine.load  # before anyone is told, and might ask
        now = time.monotonic()
        awake = []
        for request, job in list(self._open.items()):
            count = len(request.versions)
            if count and not job.first_token_at:
                job.first_token_at = now
            if request.finish_reason is not None:
                del self._open[request]
                job.finished_at = now
                awake.append(job)
            elif job.streams and count > job.seen:
                awake.append(job)
            job.seen = count
        self._wake(awake)

    def _submit(self, engine: Engine, job: Job) -> None:
        job.request = engine.submit(job.prompt, job.params, job.finished, job.options)
        self._open[job.request] = job

    def _cancel(self, engine: Engine, job: Job) -> None:
        if job.request in self._open:
            engine.cancel(job.request)
            del self._open[job.request]

    def _fail(self, engine: Engine) -> None:
        """Tell the open jobs first: what comes after may fail too."""
        requests, jobs = list(self._open), list(self._open.values())
        self._open.clear()
        self._lose(jobs)
        for request in requests:
            engine.cancel(request)

    def _end(self) -> None:
        with self._ending:
            self.ended = True
        self._lose(list(self._open.values()))
        while not self._commands.empty():
            self._commands.get().drop()

    def _lose(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.failed = True
        self._wake(jobs)

    def _wake(self, jobs: list[Job]) -> None:
        if jobs:
            self._loop.call_soon_threadsafe(self._tell, jobs)

    def _tell(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.is_done:
                self._count_off(job)
            job.arrived.set()

    def _count_off(self, job: Job) -> None:
        self.num_open -= job.counted
        job.counted = False

    def _set_paused(self, paused: bool) -> None:
        self.paused = paused

    def _stop(self, engine: Engine) -> None:
        self._stopping = True
