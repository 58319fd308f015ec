"""The engine equals its oracle: transformers' own forward over the whole text, without a cache."""

import asyncio
import random

import pytest
import torch
from torch import nn

from slimrl.inference import cache
from slimrl.inference.engine import Engine
from slimrl.inference.local_client import LocalClient
from slimrl.models.forward import attention
from slimrl.models.forward.attention import ATTENTION
from slimrl.types import SamplingParams
from tests.tiny import FAMILIES, tiny_module

STOP = 2


def module_of(family: str) -> nn.Module:
    module = tiny_module(family)
    module.set_attn_implementation(ATTENTION)
    return module.eval()


@torch.inference_mode()
def naive_greedy(family: str, prompt: list[int], max_tokens: int) -> tuple[list[int], list[float]]:
    module = tiny_module(family).eval()
    module.set_attn_implementation("eager")
    tokens, logprobs = list(prompt), []
    for _ in range(max_tokens):
        logprobs_V = module(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1].float().log_softmax(-1)
        tokens.append(int(logprobs_V.argmax()))
        logprobs.append(float(logprobs_V[tokens[-1]]))
        if tokens[-1] == STOP:
            break
    return tokens[len(prompt) :], logprobs


def never_finished(sampled: list[int]) -> bool:
    return False


def run_all(engine: Engine, requests: list[tuple[list[int], SamplingParams]], stagger: int = 0):
    sequences, pending = [], list(requests)
    while pending or engine.busy:
        for prompt, params in pending[: stagger or len(pending)]:
            sequences.append(engine.submit(prompt, params, lambda _: False))
        pending = pending[stagger or len(pending) :]
        engine.step()
    return sequences


@pytest.mark.parametrize("num_slots", [6, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_all_sequences_begin_with_is_read_once_and_nothing_else_changes(family, num_slots, monkeypatch):
    """With few slots they are read in place, with idle ones in between as some end; with many they are gathered."""
    shared = lengths_shared(monkeypatch)
    rng = random.Random(0)
    rules = [rng.randrange(3, 300) for _ in range(70)]
    prompts = [rules + [rng.randrange(3, 300) for _ in range(rng.randrange(1, 20))] for _ in range(9)]
    engine = Engine(module_of(family), frozenset([STOP]), num_slots=num_slots, capacity=128)
    requests = [(p, SamplingParams(max_tokens=rng.randrange(1, 12), temperature=0.0)) for p in prompts]
    for sequence, (prompt, params) in zip(run_all(engine, requests, stagger=5), requests, strict=True):
        tokens, logprobs = naive_greedy(family, prompt, params.max_tokens)
        assert sequence.completion_ids == tokens
        assert sequence.logprobs == pytest.approx(logprobs, abs=1e-4)
    assert shared and set(shared) <= set(range(70, 90))


def test_sequences_begun_with_other_weights_share_nothing(monkeypatch):
    shared = lengths_shared(monkeypatch)
    rng = random.Random(0)
    rules = [rng.randrange(3, 300) for _ in range(70)]
    engine = Engine(module_of("llama"), frozenset(), num_slots=8, capacity=128)

    def submit_some():
        for last in range(3, 7):
            engine.submit([*rules, last], SamplingParams(max_tokens=12, seed=last), lambda _: False)

    submit_some()
    while not shared:
        engine.step()
    engine.publish(1)
    shared.clear()
    submit_some()  # the same tokens, but the keys and values of these are those of the weights of now
    for _ in range(4):
        engine.step()
    assert engine.load.running == 8 and not shared
    while engine.busy:
        engine.step()
    assert shared  # the later ones, when they are alone


def lengths_shared(monkeypatch):
    """A list that fills with the lengths of shared prefixes."""
    shared = []

    def counted(query, prefix, *rest):
        shared.append(prefix[0].shape[2])
        return attention.attention_after_prefix(query, prefix, *rest)

    monkeypatch.setattr(cache, "attention_after_prefix", counted)
    return shared


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_and_logprobs_equal_the_naive_forward(family):
    rng = random.Random(0)
    prompts = [[rng.randrange(3, 300) for _ in range(rng.randrange(1, 40))] for _ in range(9)]
    prompts += [prompts[0], prompts[0][:-1] or prompts[0], prompts[1] + [7, 8, 9]]
    engine = Engine(module_of(family), frozenset([STOP]), num_slots=4, capacity=64)
    requests = [(p, SamplingParams(max_tokens=rng.randrange(1, 12), temperature=0.0)) for p in prompts]
    for sequence, (prompt, params) in zip(run_all(engine, requests, stagger=2), requests, strict=True):
        tokens, logprobs = naive_greedy(family, prompt, params.max_tokens)
        assert sequence.completion_ids == tokens
        assert sequence.logprobs == pytest.approx(logprobs, abs=2e-4)


def test_a_groups_prompt_is_prefilled_once():
    engine = Engine(module_of("llama"), frozenset([STOP]), num_slots=8, capacity=64)
    prompt = list(range(10, 40))
    run_all(engine, [(prompt, SamplingParams(max_tokens=4, seed=seed)) for seed in range(8)])
    assert engine.counters.prefilled == len(prompt) - 1


def test_a_later_turn_prefills_only_what_is_new():
    engine = Engine(module_of("llama"), frozenset([STOP]), num_slots=2, capacity=64)
    (first,) = run_all(engine, [(list(range(10, 30)), SamplingParams(max_tokens=5, temperature=0.0))])
    before = engine.counters.prefilled
    run_all(engine, [([*first.tokens, 50, 51, 52], SamplingParams(max_tokens=3, temperature=0.0))])
    assert engine.counters.prefilled - before == 1 + 2  # the last sampled token, and all new ones but the last


def test_published_weights_invalidate_the_cache():
    module = module_of("llama")
    engine = Engine(module, frozenset(), num_slots=2, capacity=64)
    request = (list(range(10, 30)), SamplingParams(max_tokens=4, temperature=0.0))
    (old,) = run_all(engine, [request])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    engine.publish(1)
    (new,) = run_all(engine, [request])
    fresh = Engine(module, frozenset(), num_slots=2, capacity=64)
    (expected,) = run_all(fresh, [request])
    assert new.logprobs == expected.logprobs != old.logprobs
    assert set(new.versions) == {1}
    assert set(old.versions) == {0}


def test_a_seed_decides_the_tokens_whatever_else_is_in_the_batch():
    def tokens_of(others: int) -> list[int]:
        engine = Engine(module_of("llama"), frozenset(), num_slots=4, capacity=64)
        request = (list(range(10, 30)), SamplingParams(max_tokens=10, seed=7))
        noise = [(list(range(40 + i, 60)), SamplingParams(max_tokens=5, seed=i)) for i in range(others)]
        return run_all(engine, [*noise, request])[-1].completion_ids

    assert tokens_of(0) == tokens_of(1) == tokens_of(6)


def test_sequences_stop_at_stop_tokens_and_at_the_end_of_the_context():
    module = module_of("llama")
    (free,) = run_all(Engine(module, frozenset(), 1, 24), [(list(range(10, 20)), SamplingParams(100, temperature=0.0))])
    assert (len(free.tokens), free.finish_reason) == (24, "length")
    stop = free.completion_ids[3]
    engine = Engine(module, frozenset([stop]), 1, 24)
    (stopped,) = run_all(engine, [(list(range(10, 20)), SamplingParams(100, temperature=0.0))])
    assert stopped.finish_reason == "stop"
    assert stopped.completion_ids == free.completion_ids[: free.completion_ids.index(stop) + 1]


def test_cancelling_a_request_frees_its_slot_and_changes_no_other():
    engine = Engine(module_of("llama"), frozenset(), num_slots=2, capacity=64)
    client = LocalClient(engine, decode=lambda ids: " ".join(map(str, ids)))
    prompt, params = list(range(10, 30)), SamplingParams(max_tokens=12, temperature=0.0)

    async def scenario():
        victim = asyncio.create_task(client.sample([5, 6, 7], SamplingParams(max_tokens=40)))
        kept = asyncio.create_task(client.sample(prompt, params))
        for _ in range(4):
            await asyncio.sleep(0)
        victim.cancel()
        return await kept, await client.sample(prompt, params)

    kept, alone = asyncio.run(scenario())
    assert kept.token_ids == alone.token_ids
    assert not engine.busy


def test_of_two_equal_waiting_requests_the_one_that_is_cancelled_goes():
    engine = Engine(module_of("llama"), frozenset(), num_slots=1, capacity=64)
    params, shared = SamplingParams(max_tokens=3, temperature=0.0), random.Random(0)
    first, second = (engine.submit([5, 6, 7], params, never_finished) for _ in range(2))
    first.rng = second.rng = shared
    assert first != second
    engine.cancel(second)
    while engine.busy:
        engine.step()
    assert (first.finish_reason, second.finish_reason) == ("length", None)


def test_stop_strings_end_a_completion():
    engine = Engine(module_of("llama"), frozenset(), num_slots=2, capacity=64)
    client = LocalClient(engine, decode=lambda ids: "".join(f"<{i}>" for i in ids))
    params = SamplingParams(max_tokens=12, temperature=0.0)
    free = asyncio.run(client.sample([5, 6, 7], params))
    stop = f"<{free.token_ids[2]}>"
    stopped = asyncio.run(client.sample([5, 6, 7], SamplingParams(max_tokens=12, temperature=0.0, stop=(stop,))))
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(free.token_ids[2]) + 1]
    assert stopped.finish_reason == "stop"


def test_an_engine_failure_reaches_every_waiting_caller():
    engine = Engine(module_of("llama"), frozenset(), num_slots=2, capacity=64)
    client = LocalClient(engine, decode=str)

    async def scenario():
        calls = [client.sample([100_000, 1], SamplingParams(max_tokens=2)) for _ in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(result, IndexError) for result in asyncio.run(scenario()))
