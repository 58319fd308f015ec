"""FlexAttention as compiled for a GPU: values and gradients are those of masked attention."""

import pytest
import torch
from torch.nn import functional as F

from slimrl.models.forward.attention import LayerInputs
from slimrl.trainer.attention_blocks import BlockAttention
from tests.trainer.test_attention import WINDOWS, pack_of, visible_TT

CUDA = torch.device("cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(("num_heads", "num_key_heads", "width"), [(4, 4, 16), (6, 2, 64)])
def test_values_and_gradients_are_those_of_masked_attention(num_heads, num_key_heads, width, window, dtype):
    pack = pack_of(1, repeats=8, device=CUDA)
    mask = visible_TT(pack, window)
    torch.manual_seed(0)
    shapes = [(1, heads, len(mask), width) for heads in (num_heads, num_key_heads, num_key_heads)]
    heads = [torch.randn(shape, device=CUDA, dtype=dtype, requires_grad=True) for shape in shapes]
    out = BlockAttention(pack).attend(LayerInputs(0, *heads, scale=0.3, window=window))
    exact = [head.detach().float().requires_grad_() for head in heads]
    expected = F.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.3, enable_gqa=True).transpose(1, 2)
    weight = torch.randn_like(expected)
    ours = [out, *torch.autograd.grad((out.float() * weight).sum(), heads)]
    theirs = [expected, *torch.autograd.grad((expected * weight).sum(), exact)]
    allowed = 2e-3 if dtype == torch.float32 else 0.06
    for found, wanted in zip(ours, theirs, strict=True):
        assert float((found.float() - wanted).abs().max()) < allowed * float(wanted.abs().max())
