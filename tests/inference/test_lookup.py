"""Guessing ahead changes the number of forwards, and nothing else."""

import random

import pytest

from slimrl.inference.engine import Engine
from slimrl.inference.lookup import Lookup
from slimrl.inference.scheduler import RequestOptions
from slimrl.types import SamplingParams
from tests.inference.test_engine import STOP, module_of, never_finished


def test_it_guesses_what_followed_the_last_two_tokens_the_last_time():
    lookup = Lookup(limit=3)
    tokens = [1, 2, 3, 4, 5, 1, 2]
    assert lookup.guess(tokens, room=9) == [3, 4, 5]
    assert lookup.guess(tokens, room=2) == [3, 4]
    assert lookup.guess([*tokens, 7], room=9) == []
    assert lookup.guess([*tokens, 7, 1, 2], room=9) == [7, 1, 2]


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 1]])
def test_a_text_without_repetition_gives_no_guess(tokens):
    assert Lookup(limit=4).guess(tokens, room=4) == []


def test_a_repeated_token_is_guessed_to_go_on():
    assert Lookup(limit=4).guess([8, 8, 8, 8], room=4) == [8]


def test_guesses_grow_where_they_are_right_and_shrink_where_they_are_wrong():
    lookup, tokens = Lookup(limit=8), [*range(20), 0, 1]
    lookup.learn(guessed=8, right=0)
    assert len(lookup.guess(tokens, room=9)) == 4
    for _ in range(4):
        lookup.learn(guessed=4, right=0)
    assert len(lookup.guess(tokens, room=9)) == 1
    lookup.learn(guessed=3, right=2)
    assert len(lookup.guess(tokens, room=9)) == 1
    lookup.learn(guessed=1, right=1)
    assert len(lookup.guess(tokens, room=9)) == 2


def random_requests(rng: random.Random) -> list[tuple[list[int], SamplingParams]]:
    """Prompts that repeat themselves, some of them shared, over all ways of sampling."""
    requests = []
    for seed in range(7):
        piece = [rng.randrange(3, 300) for _ in range(rng.randrange(1, 9))]
        prompt = (piece * 5)[: rng.randrange(1, 30)]
        temperature = rng.choice([0.0, 0.3, 1.0])
        params = SamplingParams(rng.randrange(1, 30), temperature, top_k=rng.choice([0, 5]), seed=seed)
        requests += [(prompt, params)] * rng.choice([1, 2])
    return requests


def finished(engine: Engine, requests: list[tuple[list[int], SamplingParams]]):
    """Run the requests, two at a time joining; returns them with the number of steps."""
    sequences, pending, steps = [], list(requests), 0
    while pending or engine.busy:
        sequences += [engine.submit(prompt, params, never_finished) for prompt, params in pending[:2]]
        pending = pending[2:]
        engine.step()
        steps += 1
    return sequences, steps


@pytest.mark.slow
@pytest.mark.parametrize(("family", "seed"), [("llama", 0), ("qwen3", 1), ("gemma3", 2), ("gemma3", 0)])
def test_tokens_and_logprobs_are_those_without_guessing(family, seed):
    module, requests = module_of(family), random_requests(random.Random(seed))
    plain, _ = finished(Engine(module, frozenset([STOP]), 4, 48), requests)
    engine = Engine(module, frozenset([STOP]), 4, 48, lookup_tokens=5)
    guessing, _ = finished(engine, requests)
    for ours, theirs in zip(guessing, plain, strict=True):
        assert ours.completion_ids == theirs.completion_ids
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=2e-4)
        assert ours.versions == theirs.versions
        assert ours.finish_reason == theirs.finish_reason
    assert 0 <= engine.counters.guessed_right <= engine.counters.guessed > 0
    assert engine.counters.sampled == sum(len(sequence.completion_ids) for sequence in plain)


def test_a_text_that_repeats_itself_needs_fewer_steps():
    module, prompt = module_of("llama"), [5, 6, 7, 8] * 4
    request = (prompt, SamplingParams(60, temperature=0.0))
    (plain,), all_steps = finished(Engine(module, frozenset(), 1, 128), [request])
    (guessing,), steps = finished(Engine(module, frozenset(), 1, 128, lookup_tokens=6), [request])
    assert guessing.completion_ids == plain.completion_ids
    assert steps < all_steps == 60


def test_a_request_for_more_than_tokens_is_served_one_token_at_a_time():
    engine = Engine(module_of("llama"), frozenset(), 1, 64, lookup_tokens=4)
    sequence = engine.submit(
        [5, 6] * 6, SamplingParams(20, temperature=0.0), never_finished, RequestOptions(top_logprobs=2)
    )
    while engine.busy:
        engine.step()
    assert engine.counters.guessed == 0
    assert len(sequence.top) == 20


def test_a_text_stop_ends_a_guess_that_goes_on():
    module, prompt = module_of("llama"), [5, 6, 7, 8] * 4
    (free,), _ = finished(Engine(module, frozenset(), 1, 128), [(prompt, SamplingParams(40, temperature=0.0))])
    for length in (1, 7, 23):
        engine = Engine(module, frozenset(), 1, 128, lookup_tokens=6)
        sequence = engine.submit(
            prompt, SamplingParams(40, temperature=0.0), lambda sampled, n=length: len(sampled) == n
        )
        while engine.busy:
            engine.step()
        assert sequence.completion_ids == free.completion_ids[:length]
        assert sequence.finish_reason == "stop"
