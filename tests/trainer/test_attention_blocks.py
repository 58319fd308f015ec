"""FlexAttention on packed rows: each query meets the keys that it sees, and values and gradients are plain ones.

PyTorch has no backward kernel of it for a CPU and refuses inputs with a gradient there. Its unfused implementation,
which its own kernels are compared with, has one: the tests lift the refusal and compute with that.
"""

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import flex_attention as torch_flex

from slimrl.models.forward.attention import LayerInputs, visible
from slimrl.trainer import attention_blocks
from slimrl.trainer.attention_blocks import BLOCK, BlockAttention
from slimrl.trainer.packing import Pack, pack_samples
from slimrl.types import Sample
from tests.trainer.samples import CPU, random_samples
from tests.trainer.test_attention_parts import seen_TT

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


def visible_TT(pack: Pack, window: int) -> torch.Tensor:
    positions_T = pack.positions_T
    return seen_TT(pack) & visible(positions_T[:, None], positions_T, window)


def inputs_of(pack: Pack, num_heads: int, num_key_heads: int, window: int, requires_grad: bool) -> LayerInputs:
    torch.manual_seed(0)
    T = len(pack.token_ids_T)
    heads = [torch.randn(1, H, T, 16, requires_grad=requires_grad) for H in (num_heads, num_key_heads, num_key_heads)]
    return LayerInputs(0, *heads, scale=0.3, window=window)


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
def test_values_and_gradients_are_those_of_masked_attention(num_heads, num_key_heads, window, unfused):
    pack = pack_of(1, repeats=2)
    inputs = inputs_of(pack, num_heads, num_key_heads, window, requires_grad=True)
    heads = inputs.query, inputs.key, inputs.value
    mask = visible_TT(pack, window)
    expected = F.scaled_dot_product_attention(*heads, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    out = BlockAttention(pack).attend(inputs)
    weight = torch.randn_like(out)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
    ours, theirs = (torch.autograd.grad((x * weight).sum(), heads) for x in (out, expected))
    for gradient, expected_gradient in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("window", [0, 16])
def test_the_compiled_kernel_computes_the_listed_blocks_alone(window, monkeypatch):
    """The kernel for a CPU reads the same map of blocks as that for a GPU: a block that it lacks would be missing."""
    if window:  # PyTorch 2.15 writes C++ that does not compile for such a rule with dynamic shapes
        fixed = torch.compile(torch_flex.flex_attention, dynamic=False, fullgraph=True)
        monkeypatch.setattr(attention_blocks, "_compile", lambda: fixed)
    for seed in (1, 2) if not window else (1,):
        pack = pack_of(seed, repeats=8)
        inputs = inputs_of(pack, 6, 2, window, requires_grad=False)
        heads = inputs.query, inputs.key, inputs.value
        with torch.no_grad():
            out = BlockAttention(pack).attend(inputs)
        mask = visible_TT(pack, window)
        expected = F.scaled_dot_product_attention(*heads, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)
