"""Attention part by part: each query meets exactly the keys that it sees, and values and gradients are plain ones."""

import pytest
import torch
from torch.nn import functional as F

from slimrl.trainer.attention_parts import attend_by_parts, parts_of
from slimrl.trainer.packing import Pack, pack_samples
from tests.trainer.samples import CPU, random_samples


def pack_of(seed: int) -> Pack:
    (pack,) = pack_samples(random_samples(seed), 10_000, CPU)
    return pack


def seen_TT(pack: Pack) -> torch.Tensor:
    """What each place of the row sees, stretch by stretch and up to the root."""
    seen = torch.zeros(len(pack.token_ids_T), len(pack.token_ids_T), dtype=torch.bool)
    for segment in pack.segments:
        own = slice(segment.start, segment.end)
        seen[own, own] = torch.ones(segment.num_queries, segment.num_queries).tril().bool()
        parent = segment.parent
        while parent >= 0:
            seen[own, pack.segments[parent].start : pack.segments[parent].end] = True
            parent = pack.segments[parent].parent
    return seen.to(pack.positions_T.device)


@pytest.mark.parametrize("seed", range(20))
def test_each_query_meets_each_key_that_it_sees_once_and_no_other(seed):
    pack = pack_of(seed)
    met = torch.zeros_like(seen_TT(pack), dtype=torch.int)
    for part in parts_of(pack.segments):
        pairs = met[part.queries, part.keys]
        pairs += torch.ones_like(pairs).tril() if part.is_own else 1
    assert torch.equal(met, seen_TT(pack).int())


@pytest.mark.parametrize(("num_heads", "num_key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_values_and_gradients_are_those_of_masked_attention(num_heads, num_key_heads):
    pack = pack_of(1)
    T = len(pack.token_ids_T)
    torch.manual_seed(0)
    heads = [torch.randn(T, H, 16, dtype=torch.float64) for H in (num_heads, num_key_heads, num_key_heads)]
    weight_THD = torch.randn_like(heads[0])
    found = []
    for by_parts in (True, False):
        query, key, value = inputs = [x.clone().transpose(0, 1).requires_grad_() for x in heads]
        if by_parts:
            out_THD = attend_by_parts(query, key, value, parts_of(pack.segments), scale=0.3)
        else:
            out_HTD = F.scaled_dot_product_attention(
                query, key, value, attn_mask=seen_TT(pack), scale=0.3, enable_gqa=True
            )
            out_THD = out_HTD.transpose(0, 1)
        (out_THD * weight_THD).sum().backward()
        found.append([out_THD.detach(), *(x.grad for x in inputs)])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected)


def test_numbers_far_apart_stay_finite_and_right():
    """Scores of 1,000 and more: the softmax of a query is all in one part, and nothing of it in the others."""
    pack = pack_of(1)
    torch.manual_seed(0)
    query, key, value = (1e3 * torch.randn(2, len(pack.token_ids_T), 8) for _ in range(3))
    out_THD = attend_by_parts(query.requires_grad_(), key, value, parts_of(pack.segments), scale=1.0)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=seen_TT(pack), scale=1.0).transpose(0, 1)
    torch.testing.assert_close(out_THD, expected, rtol=1e-4, atol=1e-2)
    out_THD.sum().backward()
    assert query.grad is not None and query.grad.isfinite().all()


def test_bfloat16_is_worked_out_in_float32():
    pack = pack_of(1)
    torch.manual_seed(0)
    heads = [torch.randn(2, len(pack.token_ids_T), 8, dtype=torch.bfloat16) for _ in range(3)]
    parts = parts_of(pack.segments)
    narrow, wide = attend_by_parts(*heads, parts, 0.3), attend_by_parts(*(x.float() for x in heads), parts, 0.3)
    assert narrow.dtype is torch.bfloat16
    assert torch.equal(narrow, wide.bfloat16())
