"""Attention within a packed row on a GPU with PyTorch's FlexAttention. It needs no (T, T) mask, padding or copies.

All tokens that continue a segment lie directly behind it, up to a known end. So query q sees key k if k <= q < end[k],
and if k is within the sliding window. FlexAttention compiles this rule, a Python function, into its kernel. The kernel
also receives a map of the blocks of the (T, T) matrix. It skips blocks in which no query sees a key. In blocks in which
every query sees every key, it does not evaluate the rule.
"""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from slimrl.models.device import to_device
from slimrl.models.forward.attention import LayerInputs
from slimrl.trainer.packing import Pack, ends_of_trees

BLOCK = 128  # queries and keys per block of the map, as in FlexAttention's kernels
# For rows shorter than a block, PyTorch would choose its decoding kernel, which does not support blocks of this size.
KERNEL = {"BACKEND": "TRITON"}


class BlockAttention:
    """FlexAttention within one pack, for all layers of the model."""

    def __init__(self, pack: Pack) -> None:
        self._positions_T = pack.positions_T
        tree_ends = zip(pack.segments, ends_of_trees(pack.segments), strict=True)
        # The segments of a pack are not sorted by position. Together they cover the row without gaps.
        in_order = sorted((segment.start, segment.num_queries, end) for segment, end in tree_ends)
        ends = [end for _, num, end in in_order for _ in range(num)]
        self._ends_T = to_device(ends, torch.long, pack.positions_T.device)
        self._masks: dict[int, BlockMask] = {}

    def attend(self, inputs: LayerInputs) -> Tensor:
        if inputs.window not in self._masks:
            self._masks[inputs.window] = self._mask(inputs.window)
        heads = inputs.query, inputs.key, inputs.value
        options = {"scale": inputs.scale, "enable_gqa": True, "kernel_options": KERNEL}
        out: Any = _compile()(*heads, block_mask=self._masks[inputs.window], **options)
        attended: Tensor = out.transpose(1, 2)
        return attended

    def _mask(self, window: int) -> BlockMask:
        """Build the map of blocks, together with the rule for partly visible blocks."""
        some, full = self._blocks(window)
        positions_T, ends_T = self._positions_T, self._ends_T

        def is_visible(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < ends_T[key])

        def is_visible_in_window(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (key <= query) & (query < ends_T[key]) & (positions_T[query] - positions_T[key] < window)

        return BlockMask.from_kv_blocks(
            *_to_list(some & ~full),
            *_to_list(full),
            BLOCK_SIZE=BLOCK,
            mask_mod=is_visible_in_window if window else is_visible,
            seq_lengths=(len(ends_T), len(ends_T)),
        )

    def _blocks(self, window: int) -> tuple[Tensor, Tensor]:
        """Return two boolean maps (B, B) of query blocks and key blocks. The first map is True where any query sees any
        key, and the second where every query sees every key."""
        length = len(self._ends_T)
        number_B = torch.arange(-(-length // BLOCK), device=self._ends_T.device)
        first_B1, last_B1 = BLOCK * number_B[:, None], (BLOCK * (number_B[:, None] + 1)).clamp_max(length) - 1
        lowest_end_B, highest_end_B = _bounds(self._ends_T)
        is_earlier, is_same = number_B < number_B[:, None], number_B == number_B[:, None]
        some = is_same | (is_earlier & (first_B1 < highest_end_B))
        full = is_earlier & (last_B1 < lowest_end_B)
        if window:
            low_B, high_B = _bounds(self._positions_T)
            some &= is_same | (low_B[:, None] - high_B < window)
            full &= high_B[:, None] - low_B < window
        return some, full


def _bounds(numbers_T: Tensor) -> tuple[Tensor, Tensor]:
    """Return the minimum and the maximum of the numbers in each block, (B,) each."""
    # Fill the last block with copies of the last number, which change neither the minimum nor the maximum.
    filled = torch.cat([numbers_T, numbers_T[-1:].expand(-len(numbers_T) % BLOCK)])
    low_B, high_B = filled.view(-1, BLOCK).aminmax(dim=1)
    return low_B, high_B


def _to_list(blocks_BB: Tensor) -> tuple[Tensor, Tensor]:
    """Convert a boolean map to FlexAttention's format. Return the number of True blocks per row, (1, 1, B), and the
    indices of all blocks per row with the True blocks first, (1, 1, B, B)."""
    count_B = blocks_BB.sum(-1, dtype=torch.int32)
    order_BB = blocks_BB.byte().argsort(dim=-1, descending=True, stable=True).int()
    return count_B[None, None], order_BB[None, None]


@functools.cache
def _compile() -> Any:
    # With dynamic shapes, one kernel works for rows of all lengths. Windows, forwards without a gradient and other
    # models need additional kernels. The limit must be high, because above it PyTorch computes all scores (T, T).
    return torch.compile(flex_attention, dynamic=True, fullgraph=True, recompile_limit=64)  # type: ignore[call-overload]
