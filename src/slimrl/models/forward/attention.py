"""One attention function for all models, registered with transformers as `slimrl`.

Each layer of the model calls the function with the queries, keys and values of all tokens of one row, shape (1, H, T,
D). An `AttentionPlan` decides which keys each query sees; the caller passes the plan to the model as the keyword
`attention_plan`. The trainer's plan separates packed sequences (`trainer/attention.py`). The engine's plan reads and
writes its KV cache (`inference/cache.py`). So sampling and training run the same module. Without a plan, the function
computes plain causal attention.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from slimrl.errors import UserError

ATTENTION = "slimrl"


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """The inputs of one layer's attention. `query` is (1, H, T, D); `key` and `value` are (1, H_kv, T, D).

    A token attends to the latest `window` positions, including its own position; 0 means all positions.
    """

    layer: int
    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    window: int


class AttentionPlan(Protocol):
    """A plan for one forward pass. It decides the keys that each query attends to."""

    def attend(self, inputs: LayerInputs) -> Tensor:
        """Return the attention output (1, T, H, D) of one layer."""


class BlockPlan(AttentionPlan, Protocol):
    """A plan for new tokens of cached sequences. It exposes its spans and cache, so that kernels can execute it."""

    @property
    def spans(self) -> Tensor:
        """The spans of new tokens (S, 4), int32, as in `ops.store`. A row has the span's slot in the cache, the row of
        its first token in the forward pass, its number of tokens, and the position of its first token."""

    def blocks(self, layer: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return the layer's cached keys and values, (slots, capacity, width) each, of the dtype and device of
        `like`."""


def gqa_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return grouped-query attention (2305.13245), (S, H, Lq, D), without copying the keys for heads that share them.

    query is (S, H, Lq, D), key and value are (S, H_kv, Lk, D). `mask` is broadcastable to (S, 1, Lq, Lk). It is True
    where a query may attend, or has numbers to add to the scores. For several queries, PyTorch's `CausalBias` is also
    allowed. Without a mask, a query attends to all keys.
    """
    S, H, Lq, D = query.shape
    H_kv = key.shape[1]
    if Lq == 1:
        # When decoding, the query heads that share a key head become the rows of one matrix: H_kv products, not H.
        rows = query.reshape(S, H_kv, H // H_kv, D)
        return F.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scale).reshape(S, H, 1, D)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, enable_gqa=H != H_kv)


def attention_after_prefix(
    query: Tensor, prefix: Sequence[Tensor], own: Sequence[Tensor], mask: Tensor, scale: float
) -> Tensor:
    """Return `gqa_attention` (S, H, 1, D) of single queries, on a CPU, for sequences that share a prefix.

    query is (S, H, 1, D). `prefix` are the shared keys and values (1, H_kv, P, D), which are read once for all queries.
    `own` are each sequence's keys and values (S, H_kv, L, D) after the prefix, and `mask` (S, 1, 1, L) applies to
    `own`. The two parts are combined by their log-sum-exp, as in Hydragen (2402.05099).
    """
    S, H, _, D = query.shape
    H_kv = prefix[0].shape[1]
    rows = query.reshape(S, H_kv, H // H_kv, D)
    # Put the queries of all sequences side by side, as if they belonged to one sequence: the prefix is then one product
    # per key head.
    together = rows.transpose(0, 1).reshape(1, H_kv, -1, D)
    # Call the CPU kernel of `scaled_dot_product_attention` directly, because it also returns the scores' log-sum-exp.
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, lse = attend(rows, *own, attn_mask=mask, scale=scale)
    parts = attend(together, *prefix, scale=scale)
    shared_out, shared_lse = (part.view(H_kv, S, -1, *part.shape[3:]).transpose(0, 1) for part in parts)
    # Softmax weights over both parts: the prefix has e^shared_lse / (e^shared_lse + e^lse) of the probability.
    share = torch.sigmoid(shared_lse - lse)[..., None]
    return torch.lerp(out.float(), shared_out.float(), share).to(out.dtype).reshape(S, H, 1, D)


def plain_causal(inputs: LayerInputs) -> Tensor:
    """Return causal attention (1, T, H, D) over the whole row as one sequence, as in a model without a plan."""
    positions_T = torch.arange(inputs.query.shape[2], device=inputs.query.device)
    mask = visible(positions_T[:, None], positions_T[None, :], inputs.window)
    out = gqa_attention(inputs.query, inputs.key, inputs.value, mask[None, None], inputs.scale)
    return out.transpose(1, 2)


def visible(query_positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    """Return the causal mask of broadcastable positions. It is True where the key is not later than the query. If
    `window` > 0, the key must also be among the latest `window` positions."""
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
    """Return the attention output (1, T, H, D) of a layer, and None instead of weights. The signature is required by
    `AttentionInterface`.

    Raises UserError for architectures whose attention a plan cannot express (soft-capping, sinks).
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


# No function for masks is registered, because plans make their own. So transformers builds no mask of (T, T) and does
# not read the positions; reading them would make every forward wait for the GPU.
AttentionInterface.register(ATTENTION, slimrl_attention)
