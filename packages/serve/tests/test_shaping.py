"""Penalties, biases and grammars: the definitions, the log-probabilities, and that nobody else notices."""

import json
import math
from functools import partial

import pytest
import torch

from slimrl.inference.engine import Engine
from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.types import SamplingParams
from slimrl_serve.grammar import Grammar, GrammarCompiler, regex_source
from slimrl_serve.shaping import Shaper, Shaping
from tests.inference.naive import finish
from tests.tiny import tiny_tokenizer
from tests.trainer.samples import policy_module

pytest.importorskip("llguidance", reason="the package llguidance is not installed")

STOP = 2
SCHEMA = {
    "x-guidance": {"whitespace_flexible": False},
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def engine_of(dtype: torch.dtype = torch.float32) -> Engine:
    return Engine(policy_module("llama").to(dtype), frozenset([STOP]), 6, 128)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(tiny_tokenizer(), 300, [STOP])


@pytest.fixture(scope="module")
def trip(compiler: GrammarCompiler) -> Grammar:
    return compiler.compile(json.dumps({"grammars": [{"json_schema": SCHEMA}]}))


def submit(engine: Engine, shaping: Shaping, top_logprobs: int = 0, **params: float) -> Request:
    options = RequestOptions(make_shaper=partial(Shaper, shaping), top_logprobs=top_logprobs)
    return engine.submit([5, 6, 7], SamplingParams(**{"max_tokens": 60, **params}), lambda _: False, options)  # type: ignore[arg-type]


def text_of(request: Request) -> str:
    return str(tiny_tokenizer().decode([token for token in request.completion_ids if token != STOP]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_schema_is_obeyed_by_a_model_without_sense(trip: Grammar, dtype: torch.dtype) -> None:
    engine = engine_of(dtype=dtype)
    kinds = ({}, {"temperature": 0.0}, {"temperature": 5.0}, {"top_p": 0.5}, {"top_k": 3}, {"min_p": 0.1})
    requests = [
        submit(engine, Shaping(grammar=trip), top, seed=seed, **kind)
        for seed, kind in enumerate(kinds)
        for top in (0, 2)
    ]
    finish(engine)
    for request in requests:
        said = json.loads(text_of(request))
        assert said["city"] in ("Paris", "Rome") and 1 <= said["days"] <= 14
        assert request.finish_reason == "stop" and request.completion_ids[-1] == STOP
        assert all(math.isfinite(logprob) and logprob <= 1e-6 for logprob in request.logprobs)
        assert all(math.exp(top[0][1]) <= 1 + 1e-5 for top in request.top)


def test_log_probabilities_are_those_of_the_allowed_tokens(compiler: GrammarCompiler) -> None:
    """`[ab]` leaves two tokens, whose probabilities sum to 1; what follows is certain."""
    shaping, engine = Shaping(grammar=compiler.compile(regex_source("[ab]cd"))), engine_of()
    requests = [submit(engine, shaping, seed=seed, temperature=3.0) for seed in range(40)]
    finish(engine)
    assert all(request.logprobs[-1] == 0.0 for request in requests)
    seen = {text_of(request): math.exp(request.logprobs[0]) for request in requests}
    assert set(seen) == {"acd", "bcd"} and sum(seen.values()) == pytest.approx(1.0, abs=1e-5)


def test_a_text_that_is_too_long_is_cut_off_and_one_that_just_fits_is_whole(compiler: GrammarCompiler) -> None:
    shaping, engine = Shaping(grammar=compiler.compile(regex_source("abcdefgh"))), engine_of()
    whole = submit(engine, shaping)
    finish(engine)
    num_tokens = len(whole.completion_ids) - 1  # without the stop token
    short, fits = (submit(engine, shaping, max_tokens=num) for num in (num_tokens - 1, num_tokens))
    finish(engine)
    assert (whole.finish_reason, short.finish_reason, fits.finish_reason) == ("stop", "length", "stop")
    assert text_of(fits) == "abcdefgh"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_free_rows_beside_shaped_ones_stay_bit_for_bit_the_same(trip: Grammar, dtype: torch.dtype) -> None:
    """The neighbours have the same prompt and random numbers, so that the forward is over the same rows."""

    def sample(shaping: Shaping) -> list[tuple[list[int], list[float]]]:
        engine = engine_of(dtype)
        free = [engine.submit([5, 6, 7], SamplingParams(12, seed=seed), lambda _: False) for seed in range(3)]
        submit(engine, shaping, 1, seed=9, max_tokens=12)
        finish(engine)
        return [(request.completion_ids, request.logprobs) for request in free]

    assert sample(Shaping(grammar=trip)) == sample(Shaping()) == sample(Shaping(frequency=1.0))


def test_new_weights_do_not_end_a_grammar(trip: Grammar) -> None:
    engine = engine_of()
    request = submit(engine, Shaping(grammar=trip))
    for version in range(1, 5):
        engine.step()
        engine.publish(version)
    finish(engine)
    assert json.loads(text_of(request)) and set(request.versions) >= {0, 1, 2, 3}


def test_a_sequence_that_cannot_go_on_fails_alone(trip: Grammar) -> None:
    engine = engine_of()
    lost, other = (submit(engine, Shaping(grammar=trip), seed=seed) for seed in range(2))
    engine.step()
    assert lost.shaper is not None and lost.shaper.matcher is not None
    lost.shaper.matcher.consume_token(299)  # as if a limit had been reached
    finish(engine)
    assert lost.finish_reason == "abort" and lost.failure
    assert json.loads(text_of(other))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('root ::= "a" ("b" | [0-9]+) "c"', "a12c"),
        (regex_source("a/b"), "a/b"),
        (regex_source("[/]\\/x"), "//x"),
        (regex_source("\\\\/"), "\\/"),
    ],
)
def test_gbnf_and_slashes(compiler: GrammarCompiler, source: str, text: str) -> None:
    matcher = compiler.compile(source).deep_copy()
    assert matcher.consume_tokens(tiny_tokenizer().encode(text)) and matcher.is_accepting()


LOGITS = [1.0, -1.0, 2.0, 0.0]


@pytest.mark.parametrize(
    ("shaping", "prompt", "reply", "expected"),
    [
        # OpenAI: mu - count * frequency - (count > 0) * presence, over the reply alone.
        (Shaping(frequency=0.5, presence=0.25), [0], [2, 2, 1], [1.0, -1.75, 0.75, 0.0]),
        # transformers and vLLM: over prompt and reply, divided if positive, else multiplied.
        (Shaping(repetition=2.0), [0], [1, 1], [0.5, -2.0, 2.0, 0.0]),
        (Shaping(bias=((3, 7.0), (0, -100.0))), [0], [], [-99.0, -1.0, 2.0, 7.0]),
        # A bias comes first, then the repetition penalty, then the others.
        (Shaping(0.5, 0.0, 2.0, ((1, 3.0),)), [], [1], [1.0, 0.5, 2.0, 0.0]),
    ],
    ids=["frequency and presence", "repetition", "bias", "order"],
)
def test_penalties_are_openais_and_vllms(
    shaping: Shaping, prompt: list[int], reply: list[int], expected: list[float]
) -> None:
    shaper = Shaper(shaping, prompt)
    for token in reply:
        shaper.accept(token)
    assert shaper.shape(torch.tensor([LOGITS]), [shaper])[0].tolist() == expected


def test_a_bias_of_100_decides_and_of_minus_100_forbids() -> None:
    engine = engine_of()
    forced = submit(engine, Shaping(bias=((17, 100.0),)), max_tokens=5)
    banned = submit(engine, Shaping(bias=((STOP, -100.0),)), max_tokens=50)
    finish(engine)
    assert forced.completion_ids == [17] * 5 and forced.logprobs == pytest.approx([0.0] * 5, abs=1e-6)
    assert STOP not in banned.completion_ids
