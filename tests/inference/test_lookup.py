"""Guessing ahead changes the number of forwards, and nothing else."""

from slimrl.inference.lookup import Lookup
from slimrl.inference.scheduler import RequestOptions
from slimrl.types import SamplingParams
from tests.inference.naive import engine_of, finish, submit


def test_it_guesses_what_followed_the_last_two_tokens_the_last_time():
    lookup = Lookup(limit=3)
    tokens = [1, 2, 3, 4, 5, 1, 2]
    assert lookup.guess(tokens, room=9) == [3, 4, 5]
    assert lookup.guess(tokens, room=2) == [3, 4]
    assert lookup.guess([*tokens, 7], room=9) == []
    assert lookup.guess([*tokens, 7, 1, 2], room=9) == [7, 1, 2]
    assert Lookup(limit=4).guess([8, 8, 8, 8], room=4) == [8]
    assert not any(Lookup(limit=4).guess(tokens, room=4) for tokens in ([], [1], [1, 2], [1, 1]))


def test_guesses_grow_where_they_are_right_and_shrink_where_they_are_wrong():
    lookup, tokens = Lookup(limit=8), [*range(20), 0, 1]
    for times, guessed, right, length in ((1, 8, 0, 4), (4, 4, 0, 1), (1, 3, 2, 1), (1, 1, 1, 2)):
        for _ in range(times):
            lookup.learn(guessed, right)
        assert len(lookup.guess(tokens, room=9)) == length


def test_a_text_that_repeats_itself_needs_fewer_steps():
    (plain, all_steps), (guessing, steps) = (
        (submit(engine, [5, 6, 7, 8] * 4, SamplingParams(60, temperature=0.0)), finish(engine))
        for engine in (engine_of(capacity=128), engine_of(capacity=128, lookup_tokens=6))
    )
    assert guessing.completion_ids == plain.completion_ids
    assert steps < all_steps == 60
    engine = engine_of(capacity=128, lookup_tokens=6)  # more than tokens is served one token at a time
    asks_for_more = submit(engine, plain.prompt, plain.params, RequestOptions(top_logprobs=2))
    assert finish(engine) == len(asks_for_more.top) == 60 and not engine.counters.guessed
    for length in (1, 7, 23):  # a text stop ends a guess that goes on
        engine = engine_of(capacity=128, lookup_tokens=6)
        cut = engine.submit(plain.prompt, plain.params, lambda sampled, n=length: len(sampled) == n)
        finish(engine)
        assert (cut.completion_ids, cut.finish_reason) == (plain.completion_ids[:length], "stop")
