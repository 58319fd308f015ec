"""Recorded graphs notice where weights and caches have moved."""

import pytest
import torch

from slimrl.inference import engine as engine_module
from slimrl.inference.engine import Engine
from slimrl.types import SamplingParams
from tests.inference.conftest import Repeated
from tests.inference.naive import finish, submit
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
