"""Tiled attention to the cache equals PyTorch's in float32."""

import random as random_module
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from slimrl.models.forward.attention import visible
from slimrl.models.native import ops
from tests.models.native.cases import HALF_STEP, NAN, random, threads

pytestmark = pytest.mark.usefixtures("tiles")
HEADS = ((9, 3), (4, 4), (8, 2))
Step = list[tuple[int, int, int]]  # spans: sequence, first position, end


@dataclass
class Case:
    """Sequences with given queries, keys and values, which are fed to a cache in pieces."""

    lengths: list[int]
    heads: tuple[int, int] = (4, 2)
    D: int = 64
    window: int = 0
    slots: list[int] = field(default_factory=list)
    capacity: int = 0

    def __post_init__(self) -> None:
        (H, H_kv), D = self.heads, self.D
        self.slots = self.slots or list(range(len(self.lengths)))
        # Large queries: some probabilities are far from even, and the largest score comes late as often as early.
        self.queries = [2 * random(L, H, D, seed=3 * s) for s, L in enumerate(self.lengths)]
        self.keys = [random(L, H_kv, D, seed=3 * s + 1) for s, L in enumerate(self.lengths)]
        self.values = [random(L, H_kv, D, seed=3 * s + 2) for s, L in enumerate(self.lengths)]
        self.scale = D**-0.5
        self.capacity = self.capacity or -(-max(self.lengths) // ops.POSITIONS) * ops.POSITIONS

    def play(self, steps: list[Step]) -> list[Tensor]:
        """Attention (L, H, D) of every sequence; NaN where no step computed it."""
        (H, H_kv), D = self.heads, self.D
        shape = max(self.slots) + 1, self.capacity, H_kv * D
        cache = torch.zeros(shape, dtype=torch.bfloat16), torch.zeros(shape, dtype=torch.bfloat16)
        found = [torch.full((L, H, D), NAN, dtype=torch.bfloat16) for L in self.lengths]
        for step in steps:
            # As a layer computes them: queries, keys and values of a token side by side.
            row = torch.cat(
                [torch.cat([x[s][a:b] for x in (self.queries, self.keys, self.values)], 1) for s, a, b in step]
            )
            query, key, value = row.split((H, H_kv, H_kv), 1)
            firsts = torch.tensor([0, *(b - a for _, a, b in step)]).cumsum(0).tolist()
            rows = [(self.slots[s], first, b - a, a) for (s, a, b), first in zip(step, firsts, strict=False)]
            spans = torch.tensor(rows, dtype=torch.int32)
            ops.store(key, value, *cache, spans)
            out = ops.attend(query, *cache, spans, self.scale, self.window)
            for (s, a, b), first in zip(step, firsts, strict=False):
                found[s][a:b] = out[first : first + b - a]
        return found

    def check(self, found: list[Tensor]) -> None:
        """The tolerance covers probabilities that are rounded to bfloat16, and the rounded result."""
        share = self.heads[0] // self.heads[1]
        for out, *inputs in zip(found, self.queries, self.keys, self.values, strict=True):
            query, key, value = (x.float().transpose(0, 1) for x in inputs)
            key, value = (x.repeat_interleave(share, 0) for x in (key, value))
            positions = torch.arange(len(out))
            mask = visible(positions[:, None], positions, self.window)
            exact, size = (
                F.scaled_dot_product_attention(query, key, v, attn_mask=mask, scale=self.scale).transpose(0, 1)
                for v in (value, value.abs())
            )
            assert bool(((out.float() - exact).abs() <= 2 * HALF_STEP * size + 1e-5).all())
            assert (out.float() - exact).norm() < 0.6 * HALF_STEP * exact.norm()


def random_steps(lengths: list[int], rng: random_module.Random) -> list[Step]:
    """Steps that feed everything once: prefills, chunks and single tokens of several sequences, in any order."""
    done, steps = [0] * len(lengths), []
    while any(a < b for a, b in zip(done, lengths, strict=True)):
        step = []
        for s in rng.sample(range(len(lengths)), len(lengths)):
            length = min(lengths[s] - done[s], rng.choice([0, 1, 1, 2, 7, 16, 33, 200, 10_000]))
            if length:
                step.append((s, done[s], done[s] + length))
                done[s] += length
        if step:
            steps.append(step)
    return steps


def whole(lengths: list[int]) -> list[Step]:
    return [[(s, 0, L)] for s, L in enumerate(lengths)]


@pytest.mark.parametrize("window", [0, 1, 20, 100])
@pytest.mark.parametrize("D", [64, 128])
@pytest.mark.parametrize("heads", HEADS)
def test_random_spans_attend_as_in_float32(heads, D, window):
    rng = random_module.Random(D + window)
    lengths = [1, 31, 32, 33, 150]
    case = Case(lengths, heads, D, window, slots=[4, 0, 6, 1, 2], capacity=192)
    case.check(case.play(random_steps(lengths, rng)))


# Lengths at the borders of blocks and chunks, and around the number of rows that are computed together.
BORDERS = [1, 31, 32, 33, 511, 512, 513, 1024, 1025]
ROWS = [-(-rows // share) + more for share in (1, 5) for rows in (16, 32, 128, 256) for more in (-1, 0, 1)]


@pytest.mark.parametrize(
    ("lengths", "heads", "window"),
    [
        *(([511, 512, 513, 1090], (3, 1), window) for window in (0, 40, 511, 512, 700)),
        *((lengths, heads, 0) for lengths in (BORDERS, ROWS) for heads in ((9, 3), (2, 2), (10, 2))),
    ],
)
def test_sequences_of_any_length_attend_as_in_float32(lengths, heads, window):
    case = Case(lengths, heads, window=window)
    case.check(case.play(random_steps(lengths, random_module.Random(window))))
    prefill = [(s, 0, L - 1) for s, L in enumerate(lengths) if L > 1]
    case.check(case.play([prefill, [(s, L - 1, L) for s, L in enumerate(lengths)]]))


@pytest.mark.parametrize("window", [0, 1, 40, 300, 600])
def test_no_circumstance_changes_a_bit_of_a_sequences_attention(window):
    """Alone or with others, whole or in pieces, with one thread or more."""
    lengths = [1300, 33, 1, 530]
    case = Case(lengths, (9, 3), window=window)
    expected = case.play(whole(lengths))
    for seed in range(3):
        for number in (1, 2):
            with threads(number):
                found = case.play(random_steps(lengths, random_module.Random(seed)))
                assert all(map(torch.equal, found, expected))


def test_nothing_outside_the_spans_is_read_into_the_result_or_written():
    case = Case([40, 50], capacity=64, slots=[0, 1])
    (H, H_kv), D = case.heads, case.D
    clean = case.play([[(0, 0, 40)]])[0]
    keys = torch.zeros(2, 64, H_kv * D, dtype=torch.bfloat16)
    values = torch.zeros_like(keys)
    spans = torch.tensor([[1, 0, 50, 0]], dtype=torch.int32)
    ops.store(case.keys[1], case.values[1], keys, values, spans)
    assert not bool(keys[0].any() or values[0].any())
    # The slot's last sequence was longer: what it left behind is hidden.
    spans = torch.tensor([[1, 0, 40, 0]], dtype=torch.int32)
    ops.store(case.keys[0], case.values[0], keys, values, spans)
    out = ops.attend(case.queries[0], keys, values, spans, case.scale, 0)
    assert torch.equal(out, clean)
    assert not bool(keys[0].any() or values[0].any())
    assert out.shape == (40, H, D)


def test_a_token_that_is_not_a_number_spoils_those_who_see_it_and_no_others():
    case = Case([60, 60])
    expected = case.play([[(0, 0, 60), (1, 0, 60)]])
    case.keys[0][45, 0, 5] = NAN
    case.values[0][45, 1, 5] = NAN
    spoilt, other = case.play([[(0, 0, 45), (1, 0, 45)], [(0, 45, 60), (1, 45, 60)]])
    assert torch.equal(other, expected[1])
    assert torch.equal(spoilt[:45], expected[0][:45])
    assert bool(spoilt[45:, :2].isnan().all())  # the queries of the first key head
    assert bool(spoilt[45:, 2:, 5].isnan().all())
    spoilt[:, 2:, 5] = expected[0][:, 2:, 5]
    assert torch.equal(spoilt[:, 2:], expected[0][:, 2:])


def test_heads_of_other_sizes_and_dtypes_do_not_fit():
    assert ops.blocks_fit(random(1, 64)) and ops.blocks_fit(random(1, 256))
    assert not ops.blocks_fit(random(1, 32)) and not ops.blocks_fit(random(1, 96))
    assert not ops.blocks_fit(random(1, 64, dtype=torch.float32))
