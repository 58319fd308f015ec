"""Decoding by recorded graphs: the same tokens, whatever rows are idle, and nothing of theirs is touched.

Without a GPU a recording is a function that is called again and writes into the same tensor; that, too, only sees what
stands in the graph's own tensors. The last test records real graphs where there is a GPU.
"""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from slimrl.inference import engine as engine_module
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import Engine
from slimrl.inference.graphs import DecodeGraphs, decode_graphs
from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.models.forward.module import ModuleForward
from slimrl.types import SamplingParams
from tests.inference.naive import finish, submit
from tests.tiny import FAMILIES
from tests.trainer.samples import policy_module


class Repeated:
    """A recorder that keeps the function, and counts its recordings, its replays, and how often it was made."""

    def __init__(self) -> None:
        self.made = self.recorded = self.replayed = 0

    def make(self) -> "Repeated":
        self.made += 1
        return self

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        self.recorded += 1
        result = work().clone()

        def replay() -> None:
            self.replayed += 1
            result.copy_(work())

        return result, replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Repeated:
    """A recorder that every engine decodes with."""
    repeated = Repeated()
    monkeypatch.setattr(engine_module, "decode_graphs", lambda *parts: DecodeGraphs(*parts, repeated.make))
    monkeypatch.setattr(engine_module, "sampling_forward", lambda module, _: ModuleForward(module))
    return repeated


def sampled(engine: Engine, seed: int) -> list[Request]:
    """Requests that come, end and are cancelled at random; some begin alike, some are longer than the fewest keys."""
    rng, requests = random.Random(seed), []
    for number in range(24):
        prompt = [rng.randrange(3, 300) for _ in range(rng.choice((1, 5, 20, 270)))]
        if requests and rng.random() < 0.4:
            old = rng.choice(requests)
            prompt = [*old.tokens[: rng.randrange(1, len(old.prompt) + 1)], *prompt[:3]]
        params = SamplingParams(rng.randrange(1, 14), temperature=rng.choice((0.0, 1.0)), seed=number)
        options = RequestOptions(top_logprobs=rng.randrange(2), min_tokens=rng.randrange(3))
        requests.append(submit(engine, prompt, params, options))
        if rng.random() < 0.15:
            engine.cancel(requests[-1])
        for _ in range(rng.randrange(3)):
            engine.step(max_prefill=100)
    while engine.busy:
        engine.step(max_prefill=100)
    return requests


@pytest.mark.slow
@pytest.mark.parametrize(("num_slots", "family"), [(1, "llama"), (3, "qwen3"), (5, "gemma3"), (1, "gemma3")])
def test_graphs_change_no_token(family: str, num_slots: int, recorder: Repeated, monkeypatch: pytest.MonkeyPatch):
    by_graphs = sampled(Engine(policy_module(family), frozenset([2]), num_slots, 320), seed=num_slots)
    assert recorder.replayed > 30 and 2 <= recorder.recorded <= 2 * 4
    monkeypatch.setattr(engine_module, "decode_graphs", lambda forward, cache, device: None)
    plainly = sampled(Engine(policy_module(family), frozenset([2]), num_slots, 320), seed=num_slots)
    for ours, plain in zip(by_graphs, plainly, strict=True):
        assert ours.completion_ids == plain.completion_ids
        assert ours.logprobs == pytest.approx(plain.logprobs, abs=2e-4)


def test_new_weights_in_their_place_are_used_and_elsewhere_are_noticed(recorder: Repeated):
    module = policy_module("llama")
    engine = Engine(module, frozenset(), 2, 64)

    def greedy() -> list[float]:
        request = submit(engine, [5, 6, 7], SamplingParams(4, temperature=0.0))
        finish(engine)
        return request.logprobs

    before, recorded = greedy(), recorder.recorded
    for version, in_place in enumerate((True, False), start=1):
        with torch.no_grad():
            for parameter in module.parameters():
                changed = parameter + 0.05 * torch.randn_like(parameter)
                if in_place:
                    parameter.copy_(changed)
                else:
                    parameter.data = changed
        engine.publish(version)
        after = greedy()
        assert after != pytest.approx(before, abs=1e-3)
        assert recorder.recorded == recorded + (0 if in_place else 1)
        before = after


def test_a_small_cache_of_a_gpu_stays_with_its_graphs_and_a_larger_one_is_recorded_anew(
    recorder: Repeated, monkeypatch: pytest.MonkeyPatch
):
    engine = Engine(policy_module("llama"), frozenset(), 2, 64)
    engine.reserve()
    recorded, bytes_held = recorder.recorded, engine._cache.bytes
    for memory, kept in ((10 * bytes_held, True), (10 * bytes_held - 10, False)):
        monkeypatch.setattr(engine_module, "memory_of", lambda device, memory=memory: memory)
        engine.offload()
        assert recorder.made == 1 + (not kept)  # a pool of memory lives no longer than its graphs
        engine.reserve()
        assert recorder.recorded == recorded + (not kept)


def test_there_are_none_without_cuda():
    forward = ModuleForward(policy_module("llama"))
    assert decode_graphs(forward, SlotCache(1, 32), torch.device("cpu")) is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("family", FAMILIES)
def test_real_graphs_change_no_token_also_after_a_rest(family: str, monkeypatch: pytest.MonkeyPatch):
    def on_gpu(is_kept: bool) -> list[Request]:
        monkeypatch.setattr(engine_module, "is_kept", lambda cache_bytes, device_bytes: is_kept)
        engine = Engine(policy_module(family).to("cuda"), frozenset([2]), 5, 320)
        first = sampled(engine, seed=5)
        engine.offload()
        again = [request.completion_ids for request in sampled(engine, seed=5)]
        assert again == [request.completion_ids for request in first]
        return first

    by_graphs = [*on_gpu(is_kept=True), *on_gpu(is_kept=False)]
    monkeypatch.setattr(engine_module, "decode_graphs", lambda forward, cache, device: None)
    for ours, plain in zip(by_graphs, on_gpu(is_kept=True) * 2, strict=True):
        assert ours.completion_ids == plain.completion_ids
        assert ours.logprobs == pytest.approx(plain.logprobs, abs=1e-3)
