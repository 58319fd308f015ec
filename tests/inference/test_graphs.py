"""Recorded graphs notice where weights and caches have moved; real graphs, where there is a GPU, change no token."""

import random

import pytest
import torch

from slimrl.inference import engine as engine_module
from slimrl.inference.cache import SlotCache
from slimrl.inference.engine import Engine
from slimrl.inference.graphs import decode_graphs
from slimrl.inference.scheduler import Request
from slimrl.models.forward.module import ModuleForward
from slimrl.types import SamplingParams
from tests.inference.conftest import Repeated
from tests.inference.naive import finish, run_all, submit
from tests.tiny import FAMILIES
from tests.trainer.samples import policy_module


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
    rng = random.Random(5)
    prompts = [[rng.randrange(3, 300) for _ in range(rng.choice((1, 5, 20, 270)))] for _ in range(24)]
    params = [SamplingParams(rng.randrange(1, 14), rng.choice((0.0, 1.0)), seed=n) for n in range(24)]

    def on_gpu(is_kept: bool) -> list[Request]:
        monkeypatch.setattr(engine_module, "is_kept", lambda cache_bytes, device_bytes: is_kept)
        engine = Engine(policy_module(family).to("cuda"), frozenset([2]), 5, 320)
        first = run_all(engine, zip(prompts, params, strict=True), stagger=2)
        engine.offload()
        return first + run_all(engine, zip(prompts, params, strict=True), stagger=2)

    by_graphs = [*on_gpu(is_kept=True), *on_gpu(is_kept=False)]
    monkeypatch.setattr(engine_module, "decode_graphs", lambda forward, cache, device: None)
    for ours, plain in zip(by_graphs, 2 * on_gpu(is_kept=True), strict=True):
        assert ours.completion_ids == plain.completion_ids
        assert ours.logprobs == pytest.approx(plain.logprobs, abs=1e-3)
