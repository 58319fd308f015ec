"""The client of an engine in the same process, in the process's loop: it can be paused between two steps."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LULL_S, LocalClient
from slimrl.inference.scheduler import Request
from slimrl.io.loop_thread import LoopTasks
from slimrl.types import SamplingParams
from tests.trainer.samples import policy_module

PROMPT = [5, 6, 7]
LONG = SamplingParams(max_tokens=3000, seed=1)


class Sampler:
    """An engine whose client samples in the process's loop, and requests to it from other threads."""

    def __init__(self) -> None:
        self.engine = Engine(policy_module("llama"), frozenset(), num_slots=2, capacity=4000)
        self.tasks = LoopTasks()
        self.client = LocalClient(self.engine, str, self.tasks)
        self.callers = ThreadPoolExecutor(2)

    def ask(self, params: SamplingParams):
        return self.callers.submit(lambda: asyncio.run(self.client.sample(PROMPT, params)))

    def wait_for(self, num_tokens: int) -> None:
        while self.engine.counters.sampled < num_tokens:
            time.sleep(0.001)


@pytest.fixture
def sampler() -> Iterator[Sampler]:
    made = Sampler()
    yield made
    made.tasks.close()
    made.callers.shutdown()


def test_requests_from_several_loops_share_the_engine(sampler: Sampler):
    asked = [sampler.ask(SamplingParams(max_tokens=20, seed=seed)) for seed in (1, 2)]
    assert [len(one.result(timeout=20).token_ids) for one in asked] == [20, 20]


@pytest.mark.slow
def test_a_paused_engine_does_nothing_and_goes_on_with_newer_weights(sampler: Sampler):
    asked = sampler.ask(SamplingParams(max_tokens=300, seed=1))
    sampler.wait_for(5)
    sampler.client.pause()
    sampled = sampler.engine.counters.sampled
    sampler.engine.offload()  # what a trainer would do; the request keeps its keys and values
    sampler.engine.publish(7)
    late = sampler.ask(SamplingParams(max_tokens=4, seed=2))  # nor does a new request move it
    time.sleep(0.05)
    assert (sampler.engine.counters.sampled, asked.done(), late.done()) == (sampled, False, False)
    sampler.client.resume()
    assert asked.result(timeout=20).versions == (0,) * sampled + (7,) * (300 - sampled)
    assert late.result(timeout=20).versions == (7,) * 4
    assert sampler.client.version == 7


def test_sampling_on_ends_with_the_last_request_or_with_enough_tokens(sampler: Sampler):
    asked = sampler.ask(SamplingParams(max_tokens=50, seed=1))
    sampler.client.sample_on(10_000)
    assert asked.result(timeout=20)
    sampler.client.pause()
    sampler.client.resume()
    sampler.ask(LONG)
    sampler.client.sample_on(10)
    sampler.client.pause()
    assert 60 <= sampler.engine.counters.sampled < 2000


def test_sampling_on_lasts_through_steps_that_are_longer_than_a_lull(sampler: Sampler, monkeypatch: pytest.MonkeyPatch):
    step = sampler.engine.step

    def long_step() -> list[Request]:
        time.sleep(2 * LULL_S)
        return step()

    monkeypatch.setattr(sampler.engine, "step", long_step)
    sampler.ask(SamplingParams(max_tokens=4, seed=1))
    sampler.client.sample_on(10_000)
    assert sampler.engine.counters.sampled == 4


def test_a_cancelled_request_frees_its_slot_while_paused(sampler: Sampler):
    async def ask_briefly() -> None:
        async with asyncio.timeout(0.05):
            await sampler.client.sample(PROMPT, LONG)

    with pytest.raises(TimeoutError):
        asyncio.run(ask_briefly())
    sampler.client.pause()
    assert not sampler.engine.busy


def local_client() -> LocalClient:
    """A client that samples in the caller's loop, and decodes each token as its number."""
    engine = Engine(policy_module("llama"), frozenset(), num_slots=2, capacity=64)
    return LocalClient(engine, decode=lambda ids: "".join(f"<{i}>" for i in ids))


def test_without_a_thread_pausing_changes_nothing_and_stop_strings_end_a_completion():
    client = local_client()
    client.pause()
    client.sample_on(10)
    free = asyncio.run(client.sample(PROMPT, SamplingParams(12, temperature=0.0)))
    assert len(free.token_ids) == 12
    stop = f"<{free.token_ids[2]}>"
    stopped = asyncio.run(client.sample(PROMPT, SamplingParams(12, temperature=0.0, stop=(stop,))))
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[2]) + 1]
    assert stopped.finish_reason == "stop"


def test_an_engine_failure_reaches_every_waiting_caller():
    client = local_client()

    async def scenario():
        calls = [client.sample([100_000, 1], SamplingParams(max_tokens=2)) for _ in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(result, IndexError) for result in asyncio.run(scenario()))
