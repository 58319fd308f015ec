"""The engine's thread without a server: jobs learn of every failure, and open jobs are counted right."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import Engine
from slimrl.models.forward.attention import ATTENTION
from slimrl.types import SamplingParams
from slimrl_serve.worker import EngineThread, Job
from tests.tiny import tiny_module

CAPACITY = 64


class Hopeless(Engine):
    """An engine that fails and cannot be recovered."""

    def step(self, max_prefill: int = 0) -> list[object]:  # type: ignore[override]
        raise ZeroDivisionError("a bug")

    def publish(self, version: int) -> None:
        raise MemoryError("none is left")


class Panic(BaseException):
    """A tokenizer's panic in Rust, which is no Exception."""


def play(scenario: Callable[[EngineThread], Awaitable[None]], kind: type[Engine] = Engine) -> None:
    """Run a scenario beside a thread with a tiny engine."""
    module = tiny_module("llama").eval()
    module.set_attn_implementation(ATTENTION)
    engine = kind(module, frozenset(), 2, CAPACITY)

    async def run() -> None:
        thread = EngineThread(lambda: engine)
        thread.start(asyncio.get_running_loop())
        try:
            async with asyncio.timeout(60):
                await scenario(thread)
        finally:
            await asyncio.to_thread(thread.stop)

    asyncio.run(run())


def job_of(length: int = 5, finished: Callable[[list[int]], bool] = lambda sampled: False) -> Job:
    return Job(list(range(10, 10 + length)), SamplingParams(3, 0.0), finished=finished)


async def end_of(*jobs: Job) -> None:
    for job in jobs:
        while not job.is_done:
            await job.arrived.wait()
            job.arrived.clear()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def works(thread: EngineThread) -> bool:
    job = job_of()
    thread.submit(job)
    await end_of(job)
    thread.close(job)
    return not job.failed


def test_a_job_that_is_finished_is_not_open_even_if_nobody_reads_it() -> None:
    async def scenario(thread: EngineThread) -> None:
        jobs = [job_of() for _ in range(3)]
        for job in jobs:
            thread.submit(job)
        assert thread.num_open == 3
        await end_of(*jobs)
        await until(lambda: thread.num_open == 0)
        for job in jobs:
            assert 0.0 < job.first_token_at <= job.finished_at
            thread.close(job)
        assert thread.num_open == 0

    play(scenario)


def panic(sampled: list[int]) -> bool:
    raise Panic


@pytest.mark.parametrize("failing", [job_of(CAPACITY), job_of(finished=panic)], ids=["refused", "panic of a decoder"])
def test_a_job_that_fails_costs_neither_the_thread_nor_the_next_job(failing: Job) -> None:
    async def scenario(thread: EngineThread) -> None:
        thread.submit(failing)
        await end_of(failing)
        assert failing.failed
        assert await works(thread)

    play(scenario)


def test_a_failed_admission_costs_those_who_wait_and_not_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_prefix = SlotCache.copy_prefix

    def fail_once(cache: SlotCache, source: int, target: int, length: int) -> None:
        monkeypatch.setattr(SlotCache, "copy_prefix", copy_prefix)
        raise RuntimeError("out of memory")

    async def scenario(thread: EngineThread) -> None:
        monkeypatch.setattr(SlotCache, "copy_prefix", fail_once)
        await thread.set_paused(True)
        jobs = [job_of(length) for length in (5, 6, 7)]
        for job in jobs:
            thread.submit(job)
        await thread.set_paused(False)
        await end_of(*jobs)
        assert [job.failed for job in jobs] == [True] * 3
        assert await works(thread)
        assert not thread.loaded.result().busy

    play(scenario)


def test_when_not_even_the_failure_can_be_treated_every_job_fails_at_once() -> None:
    async def scenario(thread: EngineThread) -> None:
        jobs = [job_of() for _ in range(3)]
        for job in jobs:
            thread.submit(job)
        await end_of(*jobs)
        assert [job.failed for job in jobs] == [True] * 3
        await until(lambda: thread.ended)
        assert not await works(thread)
        with pytest.raises(RuntimeError, match="thread has ended"):
            await thread.call(lambda engine: None)
        await until(lambda: thread.num_open == 0)

    play(scenario, Hopeless)


def test_a_stop_while_the_engine_is_made_does_not_wait_for_it() -> None:
    release = threading.Event()

    def make() -> Engine:
        release.wait(60)
        raise RuntimeError("nobody wants it any more")

    async def scenario() -> None:
        thread = EngineThread(make)
        thread.start(asyncio.get_running_loop())
        await asyncio.to_thread(thread.stop)
        assert not thread.loaded.done()
        release.set()
        await until(thread.loaded.done)

    asyncio.run(scenario())
