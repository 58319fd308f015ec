"""Prefills of several prompts in one attention call: what padding adds must not be seen."""

import itertools
import random

import pytest
import torch

from slimrl.inference.cache import CachePlan, SlotCache, Span, _similar
from slimrl.models.forward.attention import LayerInputs

H, H_KV, D = 4, 2, 24  # a head size that no kernel of ours has
CPU = torch.device("cpu")


def plainly(
    spans: list[Span], query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int
) -> torch.Tensor:
    """The attention token by token: (1, T, H, D)."""
    found, rows = [], itertools.count()
    for span in spans:
        for position in range(span.start, span.end):
            begin = max(0, position + 1 - window) if window else 0
            seen = slice(begin, position + 1)
            key, value = (x[span.slot, seen].view(-1, H_KV, D).repeat_interleave(H // H_KV, 1) for x in (keys, values))
            scores = torch.einsum("hd,nhd->hn", query[0, :, next(rows)], key) * D**-0.5
            found.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), value))
    return torch.stack(found)[None]


@pytest.mark.parametrize("seed", range(12))
def test_spans_of_any_lengths_behind_any_prefix(seed: int) -> None:
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    cache = SlotCache(12, 96)
    spans = []
    for slot in rng.sample(range(12), rng.randint(1, 12)):
        start = rng.choice((0, 0, rng.randrange(64)))
        spans.append(Span(slot, start, start + rng.randint(1, 30)))
    window = rng.choice((0, 0, 7, 200))
    T = sum(span.end - span.start for span in spans)
    query, key, value = (torch.randn(1, heads, T, D, generator=generator) for heads in (H, H_KV, H_KV))
    keys, values = cache.layer(0, H_KV * D, query)
    for layer in (keys, values):  # what earlier sequences have left
        layer.copy_(torch.randn(layer.shape, generator=generator))
    out = CachePlan(cache, spans, CPU).attend(LayerInputs(0, query, key, value, D**-0.5, window))
    rows = iter(range(T))
    for span in spans:
        for position in range(span.start, span.end):
            row = next(rows)
            assert torch.equal(keys[span.slot, position], key[0, :, row].flatten())
            assert torch.equal(values[span.slot, position], value[0, :, row].flatten())
    torch.testing.assert_close(out, plainly(spans, query, keys, values, window), rtol=1e-5, atol=1e-5)


def test_prompts_of_similar_lengths_are_one_call_and_a_long_one_is_another() -> None:
    prompts = [Span(slot, 0, 100 + slot) for slot in range(32)]
    assert [len(group) for group in _similar(prompts)] == [32]
    groups = _similar([*prompts, Span(32, 0, 3000), Span(33, 2990, 3000)])
    assert [len(group) for group in groups] == [32, 1, 1]
    assert sorted(itertools.chain(*groups), key=lambda span: span.slot)[:32] == prompts
    # Turns that begin at different places of their conversations.
    turns = [Span(slot, 200 + slot, 230 + 2 * slot) for slot in range(16)]
    assert len(_similar(turns)) == 1
