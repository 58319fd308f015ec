"""One attention function for every model, registered with transformers as `slimrl`.

The model calls it from each layer with the queries, keys and values of all tokens of one flat row, shape (1, H, T, D).
What attends to what is not the model's business but the `AttentionPlan`'s, which the caller passes to the model as the
keyword `attention_plan`: the trainer passes packed sequences (`trainer/packing.py`), the engine its KV cache
(`inference/cache.py`). So sampling and training run the same module. Without a plan it is plain causal attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface

from slimrl.errors import UserError

ATTENTION = "slimrl"


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What one layer's attention starts from. `query` is (1, H, T, D); `key` and `value` are (1, H_kv, T, D).

    `window` is the number of latest positions (itself included) that a token may attend to; 0 means all.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int


class AttentionPlan(Protocol):
    """Decides, for the tokens of one forward, which keys each query sees."""

    def attend(self, inputs: LayerInputs) -> Tensor:
        """The attention output, shape (1, T, H, D)."""


class BlockPlan(AttentionPlan, Protocol):
    """A plan for new tokens of sequences in a cache, where kernels can read and write what it knows themselves."""

    @property
    def spans(self) -> Tensor:
        """(S, 4), int32, as for `native/ops.py`: slot, first of the new tokens, how many, position of the first."""

    def blocks(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """The layer's keys and values, (slots, capacity, width) each, of the dtype and on the device of `like`."""


def gqa_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Scaled dot-product attention where several query heads share a key head, without copying the keys.

    query (S, H, Lq, D), key and value (S, H_kv, Lk, D); mask broadcastable to (S, 1, Lq, Lk), true = may attend, or
    numbers to add to the scores.
    Returns (S, H, Lq, D). For single queries (decoding) the query heads of a group ride as the rows of one matrix.
    """
    S, H, Lq, D = query.shape
    H_kv = key.shape[1]
    if Lq == 1:
        rows = query.reshape(S, H_kv, H // H_kv, D)
        return F.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scale).reshape(S, H, 1, D)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=H != H_kv)


def attention_after_prefix(
    query: Tensor, prefix: Sequence[Tensor], own: Sequence[Tensor], mask: Tensor, scale: float
) -> Tensor:
    """`gqa_attention` of single queries, on a CPU, where all sequences begin with the same keys and values.

    query (S, H, 1, D); `prefix` (1, H_kv, P, D) each, which every query sees and which are gone over once for all of
    them, not once a sequence; `own` (S, H_kv, L, D) each, what the sequences have behind it, and `mask` (S, 1, 1, L)
    for that. Returns (S, H, 1, D). The two parts are joined by their log-sum-exp, as in Hydragen
    (2402.05099).
    """
    S, H, _, D = query.shape
    H_kv = prefix[0].shape[1]
    rows = query.reshape(S, H_kv, H // H_kv, D)
    together = rows.transpose(0, 1).reshape(1, H_kv, -1, D)
    # What `scaled_dot_product_attention` calls on a CPU: it also returns the log-sum-exp of the scores.
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = attend(rows, *own, attn_mask=mask, scale=scale)
    parts = attend(together, *prefix, scale=scale)
    shared_out, shared_lse = (part.view(H_kv, S, -1, *part.shape[3:]).transpose(0, 1) for part in parts)
    # Softmax weights over both parts: the prefix has e^shared_lse / (e^shared_lse + e^lse) of the probability.
    share = torch.sigmoid(shared_lse - lse)[..., None]
    return torch.lerp(out.float(), shared_out.float(), share).to(out.dtype).reshape(S, H, 1, D)


def plain_causal(inputs: LayerInputs) -> Tensor:
    """One sequence, the row itself: what a model without a plan computes."""
    positions_T = torch.arange(inputs.query.shape[2], device=inputs.query.device)
    mask = visible(positions_T[:, None], positions_T[None, :], inputs.window)
    out = gqa_attention(inputs.query, inputs.key, inputs.value, mask[None, None], inputs.scale)
    return out.transpose(1, 2)


def visible(query_positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    """Causal mask from broadcastable positions: true where the key is not later, and within `window` if that is > 0."""
    mask = key_positions <= query_positions
    if window:
        mask = mask & (query_positions - key_positions < window)
    return mask


def slimrl_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function transformers calls; its signature is transformers', see `AttentionInterface`.

    Raises UserError for architectures whose attention does what a plan cannot express (soft-capping, sinks).
    """
    for unsupported in ("softcap", "s_aux"):
        if kwargs.get(unsupported) is not None:
            raise UserError(f"{type(module).__name__} uses `{unsupported}` in attention, which slimrl lacks.")
    inputs = LayerInputs(
        layer=int(module.layer_idx),  # type: ignore[arg-type]
        query=query,
        key=key,
        value=value,
        scale=kwargs.get("scaling") or query.shape[-1] ** -0.5,
        window=kwargs.get("sliding_window") or 0,
    )
    plan: AttentionPlan | None = kwargs.get("attention_plan")
    return (plan.attend(inputs) if plan is not None else plain_causal(inputs)), None


def _no_mask(*_args: Any, **_kwargs: Any) -> None:
    """Plans make their own masks; transformers need not build a (T, T) one."""


AttentionInterface.register(ATTENTION, slimrl_attention)
AttentionMaskInterface.register(ATTENTION, _no_mask)
