"""The engine reuses what it has computed, and a sequence's tokens depend on its prompt, seed and weights alone."""

import itertools
import random
from itertools import repeat

import pytest

from slimrl.inference import cache
from slimrl.inference.cache import Span, _similar
from slimrl.models.forward import attention
from slimrl.types import SamplingParams
from tests.inference.naive import engine_of, finish, naive_greedy, naive_module, run_all, submit
from tests.tiny import FAMILIES

STOP = 2


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that fills with the lengths of shared prefixes."""
    lengths: list[int] = []

    def counted(query, prefix, *rest):
        lengths.append(prefix[0].shape[2])
        return attention.attention_after_prefix(query, prefix, *rest)

    monkeypatch.setattr(cache, "attention_after_prefix", counted)
    return lengths


@pytest.mark.parametrize("num_slots", [6, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_all_sequences_begin_with_is_read_once_and_nothing_else_changes(family, num_slots, shared):
    """With few slots they are read in place, with idle ones in between as some end; with many they are gathered."""
    rng = random.Random(0)
    rules = [rng.randrange(3, 300) for _ in range(70)]
    prompts = [rules + [rng.randrange(3, 300) for _ in range(rng.randrange(1, 20))] for _ in range(9)]
    requests = [(p, SamplingParams(max_tokens=rng.randrange(1, 12), temperature=0.0)) for p in prompts]
    oracle = naive_module(family)
    weights = {0: oracle.state_dict()}
    for sequence in run_all(engine_of(family, num_slots, [STOP], 128), requests, stagger=5):
        tokens, logprobs = naive_greedy(oracle, sequence.prompt, [*repeat(0, len(sequence.logprobs))], weights)
        assert sequence.completion_ids == tokens
        assert sequence.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert (sequence.finish_reason == "stop") == (tokens[-1] == STOP)
    assert shared and set(shared) <= set(range(70, 90))


def test_sequences_begun_with_other_weights_share_nothing(shared):
    rng = random.Random(0)
    rules = [rng.randrange(3, 300) for _ in range(70)]
    engine = engine_of(num_slots=8, capacity=128)

    def submit_some():
        for last in range(3, 7):
            submit(engine, [*rules, last], SamplingParams(max_tokens=12, seed=last))

    submit_some()
    while not shared:
        engine.step()
    engine.publish(1)
    shared.clear()
    submit_some()  # the same tokens, but the keys and values of these are those of the weights of now
    for _ in range(4):
        engine.step()
    assert len(engine._scheduler.running) == 8 and not shared
    finish(engine)
    assert shared  # the later ones, when they are alone


def test_a_groups_prompt_and_an_earlier_turn_are_prefilled_once():
    engine, prompt = engine_of(num_slots=8), range(10, 40)
    first, *_ = run_all(engine, [(prompt, SamplingParams(max_tokens=4, seed=seed)) for seed in range(8)])
    assert engine.counters.prefilled == len(prompt) - 1
    run_all(engine, [([*first.tokens, 50, 51, 52], SamplingParams(max_tokens=3))])
    assert engine.counters.prefilled == len(prompt) - 1 + 1 + 2  # the last sampled token, and all new ones but the last


def test_a_seed_decides_the_tokens_whatever_else_is_in_the_batch():
    def tokens_of(others: int) -> list[int]:
        noise = [(range(40 + i, 60), SamplingParams(max_tokens=5, seed=i)) for i in range(others)]
        return run_all(engine_of(), [*noise, (range(10, 30), SamplingParams(10, seed=7))])[-1].completion_ids

    assert tokens_of(0) == tokens_of(1) == tokens_of(6)


def test_of_two_equal_waiting_requests_the_one_that_is_cancelled_goes():
    engine, shared = engine_of(num_slots=1), random.Random(0)
    first, second = (submit(engine, [5, 6, 7], SamplingParams(max_tokens=3, temperature=0.0)) for _ in range(2))
    first.rng = second.rng = shared
    assert first != second
    engine.cancel(second)
    finish(engine)
    assert (first.finish_reason, second.finish_reason) == ("length", None)


def test_prompts_of_similar_lengths_are_one_call_and_a_long_one_is_another():
    prompts = [Span(slot, 0, 100 + slot) for slot in range(32)]
    assert [len(group) for group in _similar(prompts)] == [32]
    groups = _similar([*prompts, Span(32, 0, 3000), Span(33, 2990, 3000)])
    assert [len(group) for group in groups] == [32, 1, 1]
    assert sorted(itertools.chain(*groups), key=lambda span: span.slot)[:32] == prompts
    # Turns that begin at different places of their conversations.
    turns = [Span(slot, 200 + slot, 230 + 2 * slot) for slot in range(16)]
    assert len(_similar(turns)) == 1
