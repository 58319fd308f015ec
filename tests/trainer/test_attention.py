"""Attention within a packed row: each query meets the keys that it sees, and values and gradients are plain ones.

PyTorch has no backward kernel of FlexAttention for a CPU and refuses inputs with a gradient there. Its unfused
implementation, which its own kernels are compared with, has one: the tests lift the refusal and compute with that.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import flex_attention as torch_flex

from slimrl.models.forward.attention import LayerInputs, visible
from slimrl.trainer import attention_blocks
from slimrl.trainer.attention_blocks import BLOCK, BlockAttention
from slimrl.trainer.attention_parts import attend_by_parts, parts_of
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Sample
from tests.trainer.samples import CPU, random_samples

WINDOWS = (0, 16, 150)


@pytest.fixture
def unfused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)  # nothing is compiled
    with torch.compiler.set_stance("force_eager"):
        yield


def pack_of(seed: int, repeats: int = 1, device: torch.device = CPU) -> Pack:
    """Random samples with shared prefixes; with `repeats`, each token stands there so many times, for long segments."""
    longer = [
        Sample(*(tuple(x for x in field for _ in range(repeats)) for field in fields), version=-1)
        for s in random_samples(seed)
        for fields in [(s.token_ids_T, s.loss_mask_T, s.logprobs_T, s.advantages_T)]
    ]
    (pack,) = pack_samples(longer, 100_000, device)
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


def visible_TT(pack: Pack, window: int = 0) -> Tensor:
    positions_T = pack.positions_T
    return seen_TT(pack) & visible(positions_T[:, None], positions_T, window)


def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention by PyTorch with a mask of the whole row, heads behind tokens."""
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=True)
    return out.transpose(-3, -2)


def random_heads(pack: Pack, num_heads: int, num_key_heads: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    T = len(pack.token_ids_T)
    return [torch.randn(H, T, width, dtype=dtype) for H in (num_heads, num_key_heads, num_key_heads)]


def assert_gradients_of(ours: Tensor, theirs: Tensor, heads: list[Tensor], atol: float) -> None:
    """Equal values, and equal gradients of their sum with random weights."""
    weight = torch.randn_like(theirs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
    found, expected = (torch.autograd.grad((out * weight).sum(), heads, retain_graph=True) for out in (ours, theirs))
    for gradient, expected_gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=atol)


@pytest.mark.parametrize(("num_heads", "num_key_heads"), [(4, 4), (6, 2), (3, 1)])
def test_values_and_gradients_of_parts_are_those_of_masked_attention(num_heads, num_key_heads):
    pack = pack_of(1)
    heads = [x.requires_grad_() for x in random_heads(pack, num_heads, num_key_heads, 16, torch.float64)]
    ours = attend_by_parts(*heads, parts_of(pack.segments), scale=0.3)
    assert_gradients_of(ours, masked(*heads, seen_TT(pack), 0.3), heads, 1e-7)


def test_numbers_far_apart_stay_finite_and_right():
    """Scores of 1,000 and more: the softmax of a query is all in one part, and nothing of it in the others."""
    pack = pack_of(1)
    query, key, value = (1e3 * x for x in random_heads(pack, 2, 2, 8, torch.float32))
    out_THD = attend_by_parts(query.requires_grad_(), key, value, parts_of(pack.segments), scale=1.0)
    torch.testing.assert_close(out_THD, masked(query, key, value, seen_TT(pack), 1.0), rtol=1e-4, atol=1e-2)
    out_THD.sum().backward()
    assert query.grad is not None and query.grad.isfinite().all()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("seed", range(4))
def test_blocks_that_are_left_out_hold_nothing_and_full_ones_everything(seed, window):
    pack = pack_of(seed, repeats=8)
    some, full = BlockAttention(pack)._blocks(window)
    T = len(pack.token_ids_T)
    assert T > 4 * BLOCK
    for row, queries in enumerate(visible_TT(pack, window).split(BLOCK)):
        for column, pairs in enumerate(queries.split(BLOCK, dim=1)):
            assert some[row, column] or not pairs.any()
            assert pairs.all() or not full[row, column]
            if not window:  # there, nothing is computed in vain
                assert some[row, column] == pairs.any() and full[row, column] == pairs.all()


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_heads", "num_key_heads"), [(4, 4), (6, 2)])
def test_values_and_gradients_of_blocks_are_those_of_masked_attention(num_heads, num_key_heads, window, unfused):
    pack = pack_of(1, repeats=2)
    heads = [x[None].requires_grad_() for x in random_heads(pack, num_heads, num_key_heads, 16, torch.float32)]
    ours = BlockAttention(pack).attend(LayerInputs(0, *heads, scale=0.3, window=window))
    assert_gradients_of(ours, masked(*heads, visible_TT(pack, window), 0.3), heads, 1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("window", [0, 16])
def test_the_compiled_kernel_computes_the_listed_blocks_alone(window, monkeypatch):
    """The kernel for a CPU reads the same map of blocks as that for a GPU: a block that it lacks would be missing."""
    if window:  # PyTorch 2.15 writes C++ that does not compile for such a rule with dynamic shapes
        fixed = torch.compile(torch_flex.flex_attention, dynamic=False, fullgraph=True)
        monkeypatch.setattr(attention_blocks, "_compile", lambda: fixed)
    for seed in (1, 2) if not window else (1,):
        pack = pack_of(seed, repeats=8)
        heads = [x[None] for x in random_heads(pack, 6, 2, 16, torch.float32)]
        with torch.no_grad():
            out = BlockAttention(pack).attend(LayerInputs(0, *heads, scale=0.3, window=window))
        torch.testing.assert_close(out, masked(*heads, visible_TT(pack, window), 0.3), rtol=0, atol=1e-5)
