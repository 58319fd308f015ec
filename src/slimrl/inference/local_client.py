"""The client for an engine in the same process.

The client calls the engine's `step` while any request is open, and lets other asyncio tasks run between two calls. So
tool calls overlap with decoding, and no threads compete for the cores. By default, the client runs in the caller's
asyncio loop. With `LoopTasks`, the client runs in one loop for the whole process. Then it accepts requests from several
loops, and can be paused between two engine steps while the trainer runs.
"""

import asyncio
from collections.abc import Callable

from slimrl.inference.client import Completion
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import Request
from slimrl.io.loop_thread import LoopTasks
from slimrl.types import SamplingParams

LULL_S = 0.05  # after this many seconds without an open request, no further request is expected
LOOK_S = 0.005
TURNS = 4  # turns of the event loop between two engine steps


class LocalClient:
    """A client of the given engine. `decode` turns token ids into text; it is only used to find stop strings."""

    def __init__(self, engine: Engine, decode: Callable[[list[int]], str], tasks: LoopTasks | None = None) -> None:
        self._engine = engine
        self._decode = decode
        self._tasks = tasks
        self._open: dict[int, asyncio.Future[Completion]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._may_step = asyncio.Event()
        self._may_step.set()
        self._sampled_before = 0

    @property
    def version(self) -> int:
        return self._engine.version

    def resume(self) -> None:
        """Continue sampling after a `pause`."""
        self._sampled_before = self._engine.counters.sampled
        if self._tasks:
            self._tasks.wait(self._set_gate(True))

    def sample_on(self, num_tokens: int) -> None:
        """Sample until no request has been open for `LULL_S` seconds, or `num_tokens` tokens have been sampled since
        `resume`."""
        if self._tasks:
            self._tasks.wait(self._sample_on(num_tokens))

    def pause(self) -> None:
        """Stop the engine after its current step. Open requests keep their slots, and continue after `resume`."""
        if self._tasks:
            self._tasks.wait(self._set_gate(False))

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Sample until a stop token, a stop string, `max_tokens` or the end of the context.

        If the asyncio task of a call is cancelled, the slot of its request is freed. An exception of the engine is
        raised in every open call.
        """
        work = self._sample(prompt, params)
        return await (self._tasks.run(work) if self._tasks else work)

    async def _sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        sequence = self._engine.submit(prompt, params, self._stop_check(params.stop))
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._open[id(sequence)] = future
        # One driver task steps the engine for all open requests; it stops when the engine is idle.
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            return await future
        finally:
            del self._open[id(sequence)]
            if sequence.finish_reason is None:
                self._engine.cancel(sequence)

    async def _drive(self) -> None:
        try:
            while self._engine.busy:
                await self._may_step.wait()
                for sequence in self._engine.step():
                    self._resolve(sequence)
                # Let other asyncio tasks run, so that environments answer and new requests arrive. A request to a judge
                # takes several turns of the event loop. With one turn per engine step, it would wait for as many steps.
                for _ in range(TURNS if self._tasks else 1):
                    await asyncio.sleep(0)
        except Exception as error:
            # The engine is broken for all requests. Each request must fail, because its caller would wait forever.
            for future in self._open.values():
                if not future.done():
                    future.set_exception(error)

    async def _set_gate(self, is_open: bool) -> None:
        # No step is running now, because a step is one call in the same loop.
        if is_open:
            self._may_step.set()
        else:
            self._may_step.clear()

    async def _sample_on(self, num_tokens: int) -> None:
        clock = asyncio.get_running_loop().time
        await self._set_gate(True)
        seen = clock()
        while self._engine.counters.sampled - self._sampled_before < num_tokens:
            if self._open:  # a single step may take longer than a lull
                seen = clock()
            elif clock() - seen >= LULL_S:
                break
            await asyncio.sleep(LOOK_S)

    def _resolve(self, sequence: Request) -> None:
        future = self._open.get(id(sequence))
        if future is not None and not future.done():
            assert sequence.finish_reason in ("stop", "length")
            completion = Completion(
                tuple(sequence.completion_ids),
                tuple(sequence.logprobs),
                tuple(sequence.versions),
                sequence.finish_reason,
            )
            future.set_result(completion)

    def _stop_check(self, stop: tuple[str, ...]) -> Callable[[list[int]], bool]:
        if not stop:
            return lambda sampled: False
        # A token has at least one byte, and a character at most four bytes. So a stop string that the newest token
        # completes lies within the last `tail` tokens. Decoding all tokens every time would take quadratic time.
        tail = 4 * max(map(len, stop)) + 4
        return lambda sampled: any(text in self._decode(sampled[-tail:]) for text in stop)
