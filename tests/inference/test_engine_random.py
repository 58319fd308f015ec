"""Random cases of the engine equal its oracle; requests may ask for more than tokens."""

import random
from dataclasses import dataclass, field

import pytest
import torch

from slimrl.inference.engine import Engine, EngineCounters
from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.models.forward.module import ModuleForward
from slimrl.models.native import ops
from slimrl.types import SamplingParams
from tests.inference.naive import (
    engine_of,
    finish,
    naive_greedy,
    naive_module,
    naive_prompt_logprobs,
    run_all,
    submit,
)
from tests.models.native.cases import skip_without_tiles, wide_policy
from tests.tiny import FAMILIES
from tests.trainer.samples import policy_module

CAPACITY = 48


@dataclass
class Case:
    """One random scenario. Prompts overlap: each is new, an old one, or an old sequence continued."""

    family: str
    seed: int
    updates: bool
    rng: random.Random = field(init=False)
    sequences: list[Request] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.module = policy_module(self.family)
        num_slots = self.rng.randrange(1, 6)
        self.engine = Engine(self.module, frozenset([2]), num_slots, CAPACITY)
        self.weights = {0: self.snapshot()}

    def snapshot(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.module.state_dict().items()}

    def prompt(self) -> list[int]:
        new = [self.rng.randrange(3, 300) for _ in range(self.rng.randrange(1, 25))]
        if not self.sequences or self.rng.random() < 0.4:
            return new
        old = self.rng.choice(self.sequences)
        tokens = self.rng.choice((old.prompt, old.tokens))
        return [*tokens[: self.rng.randrange(1, len(tokens) + 1)], *new[: self.rng.randrange(4)]][: CAPACITY - 1]

    def update(self) -> None:
        generator = torch.Generator().manual_seed(self.rng.randrange(1 << 30))
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
        version = self.engine.version + 1
        self.engine.publish(version)
        self.weights[version] = self.snapshot()

    def play(self, num_requests: int) -> None:
        while len(self.sequences) < num_requests or self.engine.busy:
            for _ in range(self.rng.randrange(4) if len(self.sequences) < num_requests else 0):
                params = SamplingParams(self.rng.randrange(1, 12), temperature=0.0)
                scored = self.rng.randrange(-1, 3) if self.rng.random() < 0.2 else -1
                options = RequestOptions(top_logprobs=self.rng.randrange(3), prompt_logprobs=scored)
                self.sequences.append(submit(self.engine, self.prompt(), params, options))
            open_now = [s for s in self.sequences if s.finish_reason is None and id(s) not in self.cancelled]
            if open_now and self.rng.random() < 0.1:
                victim = self.rng.choice(open_now)
                self.cancelled.add(id(victim))
                self.engine.cancel(victim)
            if self.updates and self.rng.random() < 0.2:
                self.update()
            self.engine.step()


@pytest.mark.parametrize("updates", [pytest.param(False, marks=pytest.mark.slow), True], ids=["fixed", "updated"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["plain", pytest.param("graphs", marks=pytest.mark.slow)])
def test_no_circumstance_changes_a_sequences_greedy_tokens(
    way: str, family: str, seed: int, updates: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "graphs":
        recorder = request.getfixturevalue("recorder")
        monkeypatch.setattr("slimrl.inference.graphs.FEWEST_KEYS", 16)
    case = Case(family, seed, updates)
    case.play(num_requests=25)
    assert way != "graphs" or (recorder.replayed > 30 and 2 <= recorder.recorded <= 12)
    oracle = naive_module(family)
    for sequence in case.sequences:
        tokens, logprobs = naive_greedy(oracle, sequence.prompt, sequence.versions, case.weights)
        assert sequence.completion_ids == tokens
        assert sequence.logprobs == pytest.approx(logprobs, abs=5e-4)
        if sequence.versions and id(sequence) not in case.cancelled:
            assert sequence.finish_reason == ("stop" if tokens[-1] == 2 else "length")
    assert not case.engine.busy


@pytest.mark.parametrize("max_prefill", [7, 1 << 20])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompt_log_probabilities_equal_transformers_however_the_prompt_is_cut_or_cached(
    family: str, max_prefill: int
) -> None:
    engine, prompt = engine_of(family), list(range(10, 50))
    run_all(engine, [(prompt, SamplingParams(2))])
    before = engine.counters.prefilled
    sequence = submit(engine, prompt, SamplingParams(2), RequestOptions(prompt_logprobs=3))
    while engine.busy:
        engine.step(max_prefill)
    assert engine.counters.prefilled - before == len(prompt) - 1
    expected_TV = naive_prompt_logprobs(naive_module(family), prompt)
    assert len(sequence.scored) == len(prompt) - 1
    for scored, token, logprobs_V in zip(sequence.scored, prompt[1:], expected_TV, strict=True):
        assert scored.logprob == pytest.approx(float(logprobs_V[token]), abs=2e-4)
        assert scored.rank == int((logprobs_V > logprobs_V[token]).sum()) + 1
        assert [token for token, _ in scored.top] == logprobs_V.topk(3).indices.tolist()


def test_a_long_prompt_neither_keeps_others_waiting_nor_is_starved_by_those_that_come_later() -> None:
    engine = engine_of(num_slots=3)
    running = submit(engine, [5, 6, 7], SamplingParams(12))
    submit(engine, [8, 9], SamplingParams(1))
    long = submit(engine, range(10, 50), SamplingParams(2))
    for number in range(10):  # one after the other in the slot that the second has left
        engine.step(max_prefill=10)
        assert len(running.completion_ids) == number + 1
        submit(engine, [100 + number] * 11, SamplingParams(1))
    assert long.finish_reason == "length"


@pytest.mark.parametrize(
    "params", [SamplingParams(6, 0.0), SamplingParams(6, 0.7), SamplingParams(6, 1.0, top_p=0.5, top_k=5, min_p=0.01)]
)
def test_top_log_probabilities_are_of_the_distribution_that_was_sampled(params: SamplingParams) -> None:
    engine = engine_of()
    plain = submit(engine, range(10, 20), params)
    sequence = submit(engine, range(10, 20), params, RequestOptions(top_logprobs=300))
    finish(engine)
    assert plain.top == []
    assert sequence.completion_ids == plain.completion_ids
    for token, logprob, top in zip(sequence.completion_ids, sequence.logprobs, sequence.top, strict=True):
        assert dict(top)[token] == pytest.approx(logprob, abs=1e-5)
        assert sum(torch.tensor([logprob for _, logprob in top]).exp()) == pytest.approx(1.0, abs=1e-4)
        assert [logprob for _, logprob in top] == sorted((logprob for _, logprob in top), reverse=True)
        assert len(top) <= (params.top_k or 300)


def test_keys_of_old_weights_are_never_shared_nor_kept() -> None:
    engine, prompt = engine_of(num_slots=2), list(range(10, 40))
    running = submit(engine, prompt, SamplingParams(6))
    engine.step()
    engine.publish(1)
    before = engine.counters.prefilled
    other = submit(engine, prompt, SamplingParams(2, seed=1))
    finish(engine)
    assert other.completion_ids[0] != running.completion_ids[0]
    assert running.versions == [0] + [1] * 5
    assert engine.counters.prefilled - before == len(prompt) - 1
    again = submit(engine, prompt, SamplingParams(2))
    continued = submit(engine, [*running.tokens, 7], SamplingParams(2))
    finish(engine)
    # From `other`, which fed the whole prompt; of `running` there is nothing.
    assert (again.cached, continued.cached) == (len(prompt) - 1, len(prompt))
    assert engine.counters.cached == 2 * len(prompt) - 1
    assert engine.counters.sampled == 6 + 2 + 2 + 2


def test_a_publication_that_fails_changes_no_version_and_leaves_nothing_to_reuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slimrl.inference.engine.sampling_forward", Unrefreshable)
    engine, prompt = engine_of(), list(range(10, 40))
    run_all(engine, [(prompt, SamplingParams(1))])
    with pytest.raises(MemoryError):
        engine.publish(1)
    again = submit(engine, prompt, SamplingParams(1))
    finish(engine)
    assert (engine.version, again.versions, again.cached) == (0, [0], 0)


class Unrefreshable(ModuleForward):
    """A forward whose copy of the weights cannot be brought up to date."""

    def refresh(self) -> None:
        raise MemoryError


def test_reserving_memory_leaves_no_trace() -> None:
    engine = engine_of()
    engine.reserve()
    assert not engine.busy
    assert engine.counters == EngineCounters()
    sequence = submit(engine, [0, 5], SamplingParams(1))
    finish(engine)
    assert sequence.cached == 0


def wide_engine(family: str = "llama", num_slots: int = 1) -> Engine:
    """An engine in bfloat16, with heads for which attention has a kernel."""
    return Engine(wide_policy(family), frozenset([2]), num_slots, 640)


def wide_prompts() -> list[list[int]]:
    """Prompts with lengths around the cache's blocks and chunks; some begin alike."""
    rng = random.Random(0)
    lengths = [1, 2, 31, 32, 33, 64, 100, 500, 511, 520]
    prompts = [[rng.randrange(3, 320) for _ in range(length)] for length in lengths]
    prompts += [[*prompts[-1][:cut], *(rng.randrange(3, 320) for _ in range(5))] for cut in (1, 32, 40, 505, 519)]
    return prompts


@pytest.mark.parametrize(("num_slots", "max_prefill"), [(4, 1 << 20), (4, 50), (19, 170)])
def test_no_circumstance_changes_a_bit_of_what_is_sampled_on_the_matrix_unit(num_slots: int, max_prefill: int) -> None:
    """Other sequences, the cuts of prompts and the cached parts of them do not matter."""
    skip_without_tiles()
    prompts = wide_prompts()
    params = [SamplingParams(24, temperature=n % 3 / 2, seed=n) for n in range(len(prompts))]
    alone, engine = wide_engine(), wide_engine(num_slots=num_slots)
    together = [submit(engine, prompt, p) for prompt, p in zip(prompts, params, strict=True)]
    while engine.busy:
        engine.step(max_prefill=max_prefill)
    for sequence, prompt, p in zip(together, prompts, params, strict=True):
        alone.publish(0)  # so that nothing is cached
        expected = submit(alone, prompt, p)
        finish(alone)
        assert sequence.completion_ids == expected.completion_ids
        assert sequence.logprobs == expected.logprobs
    assert engine.counters.cached > 500 and alone.counters.cached == 0


@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3", "phi3"])
def test_the_matrix_unit_is_as_near_to_float32_as_pytorch(
    family: str, num_slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every place of prompts, cut into pieces, and of what follows them."""
    skip_without_tiles()
    ours = distance_to_float32(family, num_slots)
    monkeypatch.setattr(ops, "available", lambda tensor: False)
    plain = distance_to_float32(family, num_slots)
    assert 0 < ours < 1.25 * plain


def distance_to_float32(family: str, num_slots: int) -> float:
    engine, exact, errors = wide_engine(family, num_slots), wide_policy(family).float(), []
    prompts = [prompt for prompt in wide_prompts() if len(prompt) in (2, 33, 100, 520)]
    options = RequestOptions(prompt_logprobs=0)
    sequences = [submit(engine, prompt, SamplingParams(24), options) for prompt in prompts]
    while engine.busy:
        engine.step(max_prefill=150)
    for sequence in sequences:
        expected_TV = naive_prompt_logprobs(exact, sequence.tokens)
        expected = expected_TV.gather(-1, torch.tensor(sequence.tokens[1:])[:, None])[:, 0]
        errors.append(torch.tensor([*(scored.logprob for scored in sequence.scored), *sequence.logprobs]) - expected)
    return float(torch.cat(errors).norm())
