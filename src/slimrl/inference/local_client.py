"""The client for an engine in the same process.

It runs the engine in the caller's asyncio loop: it steps the engine while any request is open, and lets other tasks run
between steps. So tool calls overlap with decoding, and no threads compete for the cores.
"""

import asyncio
from collections.abc import Callable

from slimrl.inference.client import Completion
from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import Request
from slimrl.types import SamplingParams


class LocalClient:
    """A client of the given engine. `decode` turns token ids into text; it is only used to find stop strings."""

    def __init__(self, engine: Engine, decode: Callable[[list[int]], str]) -> None:
        self._engine = engine
        self._decode = decode
        self._open: dict[int, asyncio.Future[Completion]] = {}
        self._driver: asyncio.Task[None] | None = None

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Sample until a stop token, a stop string, `max_tokens` or the end of the context.

        Cancelling the task frees the slot. An exception of the engine is raised in every open call.
        """
        sequence = self._engine.submit(prompt, params, self._stop_check(params.stop))
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._open[id(sequence)] = future
        # One driver task steps the engine for all open requests; it ends when the engine is idle.
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
                for sequence in self._engine.step():
                    self._resolve(sequence)
                await asyncio.sleep(0)  # other tasks run: environments answer, new requests arrive
        except Exception as error:
            # The engine is broken for all requests: each must fail, or its caller would wait for ever.
            for future in self._open.values():
                if not future.done():
                    future.set_exception(error)

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
        # A token is at least one byte, and a character has at most four: if the newest token completes a stop string,
        # the string lies within this many tokens. Decoding all of them every time would take quadratic time.
        tail = 4 * max(map(len, stop)) + 4
        return lambda sampled: any(text in self._decode(sampled[-tail:]) for text in stop)
