"""Tiled attention within a packed row, and its gradient, equal autograd through dense attention."""

import random as random_module
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from slimrl.models.forward.attention import visible
from slimrl.models.native import ops
from tests.models.native.cases import HALF_STEP, NAN, random, threads

pytestmark = pytest.mark.usefixtures("tiles")
Rows = list[tuple[int, int, int]]  # segments: first token, how many, number of the one that is continued


@dataclass
class Packed:
    """The results of one packed row's attention, forward and backward."""

    out: Tensor
    logsumexp: Tensor
    query: Tensor
    key: Tensor
    value: Tensor


def in_a_row(lengths: list[tuple[int, int]]) -> Rows:
    """The rows of segments, given by (length, parent), that follow each other."""
    firsts = torch.tensor([0, *(length for length, _ in lengths)]).cumsum(0).tolist()
    return [(first, length, parent) for (length, parent), first in zip(lengths, firsts, strict=False)]


def ancestry(rows: Rows, number: int) -> list[int]:
    """A segment and its ancestors, the root first."""
    parent = rows[number][2]
    return [number] if parent < 0 else [*ancestry(rows, parent), number]


def random_rows(seed: int) -> Rows:
    """Random trees of prompts and continuations, with zero to several children; lengths around the sizes of tiles
    and blocks, 1 and 0 among them."""
    rng = random_module.Random(seed)
    lengths: list[tuple[int, int]] = []
    for _ in range(4):
        lengths.append((rng.choice([0, 1, 5, 16, 31, 32, 33, 70]), -1))
        prompt = len(lengths) - 1
        for _ in range(rng.randrange(6)):
            parent = rng.choice([prompt, rng.randrange(prompt, len(lengths))])
            lengths.append((rng.choice([0, 1, 1, 2, 15, 17, 32, 33, 40]), parent))
    return in_a_row([*lengths, (1, -1)])


@dataclass
class Case:
    rows: Rows
    heads: tuple[int, int] = (4, 2)
    D: int = 64
    window: int = 0

    def __post_init__(self) -> None:
        (H, H_kv), T = self.heads, max(first + length for first, length, _ in self.rows)
        self.inputs = [2 * random(T, H, self.D), random(T, H_kv, self.D, seed=1), random(T, H_kv, self.D, seed=2)]
        self.grad = random(T, H, self.D, seed=3)
        self.scale = self.D**-0.5

    def kernel(self) -> Packed:
        positions = [sum(self.rows[s][1] for s in ancestry(self.rows, number)[:-1]) for number in range(len(self.rows))]
        rows = torch.tensor([(*row, position) for row, position in zip(self.rows, positions, strict=True)])
        segments = ops.Segments(rows.to(torch.int32), self.scale, self.window)
        out, logsumexp = ops.attend_packed(*self.inputs, segments)
        return Packed(out, logsumexp, *ops.attend_packed_backward(self.inputs, out, logsumexp, self.grad, segments))

    def dense(self) -> Packed:
        query, key, value = (x.float().requires_grad_() for x in self.inputs)
        share = self.heads[0] // self.heads[1]
        scores = torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(share, 1)) * self.scale
        scores = scores.masked_fill(~self.mask(), -torch.inf)
        out = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value.repeat_interleave(share, 1))
        out.backward(self.grad.float())
        logsumexp = scores.detach().logsumexp(-1).t()
        return Packed(out.detach(), logsumexp, query.grad, key.grad, value.grad)

    def mask(self) -> Tensor:
        T = len(self.inputs[0])
        mask = torch.zeros(T, T, dtype=torch.bool)
        for number, (first, length, _) in enumerate(self.rows):
            places = torch.arange(first, first + length)
            whole = [self.rows[s] for s in ancestry(self.rows, number)]
            seen = torch.cat([torch.arange(start, start + num) for start, num, _ in whole])
            positions = torch.arange(len(seen))
            mask[places[:, None], seen] = visible(positions[len(seen) - length :, None], positions, self.window)
        return mask


# How many half steps of bfloat16 a token's and head's numbers may be off, in their size or the typical one. A query's
# gradient is a difference: that of its output times the values, less the same times the output, which was rounded.
FURTHEST = {"out": 1, "query": 8, "key": 4, "value": 1}


def assert_near(ours: Packed, exact: Packed) -> None:
    torch.testing.assert_close(ours.logsumexp, exact.logsumexp, rtol=0, atol=5e-6)
    for name, furthest in FURTHEST.items():
        found, expected = getattr(ours, name).float(), getattr(exact, name)
        error, size = (found - expected).norm(dim=-1), expected.norm(dim=-1)
        allowed = furthest * HALF_STEP * (size + size.square().mean().sqrt()) + 1e-4
        assert bool((error <= allowed).all()), name
        assert error.norm() < HALF_STEP * size.norm() + 1e-3, name


@pytest.mark.parametrize("window", [0, 1, 20])
@pytest.mark.parametrize(("heads", "D"), [((9, 3), 64), ((4, 4), 64), ((8, 2), 128)])
@pytest.mark.parametrize("seed", range(3))
def test_random_segments_equal_dense_attention(seed, heads, D, window):
    case = Case(random_rows(seed), heads, D, window)
    assert_near(case.kernel(), case.dense())


CHUNKS = in_a_row([(530, -1), (40, 0), (520, 0), (1, 2), (600, 3), (20, -1)])  # longer than a chunk of keys
ANY_ORDER = [(40, 7, 2), (0, 33, -1), (50, 20, -1), (47, 3, 0), (33, 7, 1)]
SINGLE = [
    [(0, length, -1)] for length in (1, 16, 32, 170, 171, 512, 513)
]  # 170 2/3 tokens fill a chunk with query rows


@pytest.mark.parametrize(
    ("rows", "heads", "window"),
    [
        *((CHUNKS, (3, 1), window) for window in (0, 100, 600)),
        *((rows, (3, 1), 0) for rows in SINGLE),
        (ANY_ORDER, (4, 2), 0),
    ],
)
def test_segments_of_any_length_and_order_equal_dense_attention(rows, heads, window):
    case = Case(rows, heads, window=window)
    assert_near(case.kernel(), case.dense())


@pytest.mark.parametrize("window", [0, 20])
def test_gradients_are_the_same_bits_in_every_run_and_with_every_number_of_threads(window):
    case = Case(in_a_row([(100, -1), (200, 0), (33, 0), (0, 0), (530, -1), (64, 4)]), (9, 3), window=window)
    expected = case.kernel()
    for number in (1, 2, 2, 2, 3):
        with threads(number):
            found = case.kernel()
        for name in ("out", "logsumexp", "query", "key", "value"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_what_is_not_a_number_stays_in_its_sequence():
    case = Case(in_a_row([(20, -1), (20, 0), (20, 0), (20, -1)]))
    expected = case.kernel()
    case.inputs[0][70, 1, 3] = NAN
    found = case.kernel()
    assert bool(found.out[70, 1].isnan().all() and found.query[70, 1].isnan().all())
    assert bool(found.key[60:71, 0].isnan().all() and found.value[60:71, 0].isnan().all())
    for name in ("out", "query", "key", "value"):
        assert torch.equal(getattr(found, name)[:60], getattr(expected, name)[:60]), name
