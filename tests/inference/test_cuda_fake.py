"""Prefill and decoding on `cuda`, by fake tensors: no devices are mixed, and a step waits for the GPU once."""

from collections.abc import Iterator

import pytest
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from slimrl.inference import cache as cache_module
from slimrl.inference import engine as engine_module
from slimrl.inference import graphs as graphs_module
from slimrl.inference.engine import Engine
from slimrl.inference.graphs import DecodeGraphs
from slimrl.inference.scheduler import RequestOptions
from slimrl.types import SamplingParams
from tests.fake_cuda import CUDA, Waits, fake_cuda
from tests.inference.naive import submit
from tests.trainer.samples import policy_module

SAMPLED = "inference/sampling.py sample_tokens"  # reads the tokens that were sampled, all at once
PARAMS = (
    SamplingParams(max_tokens=3),
    SamplingParams(max_tokens=3, temperature=0.0),
    SamplingParams(max_tokens=3, temperature=0.5, top_p=0.9, top_k=5, min_p=0.1),
)
PROMPT = list(range(40))  # longer than the sliding window of the tiny gemma3


@pytest.fixture(autouse=True)
def _decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def graphs(forward, cache, device):
        return DecodeGraphs(forward, cache, device, lambda: lambda work: (work(), lambda: None))

    def causal(*size: int) -> Tensor:
        with _disable_current_modes():  # it is a subclass of tensors, as fake tensors are: none can be both
            return causal_lower_right(*size)

    causal_lower_right = cache_module.causal_lower_right
    monkeypatch.setattr(engine_module, "decode_graphs", graphs)
    monkeypatch.setattr(cache_module, "causal_lower_right", causal)
    monkeypatch.setattr(graphs_module.ModuleForward, "addresses", lambda _: ())  # fake tensors have none


def engine_on_cuda(family: str) -> Engine:
    with CUDA:
        module = policy_module(family)
    return Engine(module, frozenset([2]), num_slots=8, capacity=128)


def waits_of_steps(engine: Engine, waits: Waits) -> Iterator[list[str]]:
    """The places that wait for the GPU, step by step until no request is left."""
    while engine.busy:
        waits.places.clear()
        engine.step()
        yield list(waits.places)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_each_step_waits_once_for_the_tokens_it_sampled(family):
    with fake_cuda() as waits:
        engine = engine_on_cuda(family)
        for turn in ([], [3, 4, 5]):  # the second turn begins with what is in the cache
            for first, params in enumerate(PARAMS):
                submit(engine, [first, *PROMPT, *turn], params)
            assert [*waits_of_steps(engine, waits)] == [[SAMPLED]] * 3
        assert engine.counters.cached >= len(PARAMS) * len(PROMPT)
        requests = [submit(engine, [n, *PROMPT], PARAMS[0]) for n in range(6)]
        engine.step()
        for request in requests[:5]:  # which leaves gaps between the slots
            engine.cancel(request)
        assert [*waits_of_steps(engine, waits)] == [[SAMPLED]] * 2


@pytest.mark.slow
def test_requests_that_ask_for_more_than_tokens_wait_for_it():
    with fake_cuda() as waits:
        engine = engine_on_cuda("qwen3")
        options = RequestOptions(top_logprobs=2, prompt_logprobs=1)
        submit(engine, PROMPT, PARAMS[0], options)
        first, *others = waits_of_steps(engine, waits)
    assert first == ["inference/sampling.py score_tokens"] * 4 + [SAMPLED, "inference/sampling.py top_tokens"]
    assert others == [[SAMPLED, "inference/sampling.py top_tokens"]] * 2
