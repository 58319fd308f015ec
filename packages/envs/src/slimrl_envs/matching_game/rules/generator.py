"""New deals of the matching game: the published distribution of games in which talking pays, sampled exactly and fast.

A table is uniform on 0..99, each player sees each cell with probability 2/5, scales are uniform on 1..10; a deal is
kept if `Deal.requires_communication`: for n = 8 one table in some 3,000, for n = 3 one in 170, for n = 2 one in 900.
Knows nothing of turns or of text.

Rows and columns are then put into a random order, so that the rule favours nobody by name (`relabel`).

The distribution is exact because this is plain rejection sampling: tables are drawn independently, and those that
break the rule are left out, in the order drawn. It is fast because whole batches are looked at together, for a bound
that is sure: a player's own assignment is one of those that look best to it, so it is worth at least the worst of
these. Where even that worst is too good, the table breaks the rule whichever the player takes. The few tables that are
left are judged by the rule itself. Bits are drawn by a bit generator of numpy, whose stream never changes, seeded
by the generator that is passed in: a seed gives the same deals on every machine.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from slimrl.environments.held_out import split_by_hash
from slimrl.errors import UserError
from slimrl.types import Split
from slimrl_envs.matching_game.rules.deal import MARGIN, MAX_VALUE, UNKNOWN, Deal, default_names, optimum

MIN_SIZE, MAX_SIZE = 2, 10
VERSION = "v2"
"""The version of the deals of a seed. It is part of their names, so that games of two versions are not confused."""
# One game in five is held out, decided by a hash of its table: no game is ever in both splits under any settings.
_NUM_VALUES = MAX_VALUE + 1
_BATCH = 8192  # a table costs least so: much fewer, and calls of numpy cost more than numbers; more leave the cache
_UPSTREAM_BATCH = 2048
# A cell is one of 100 values, known to the first player in 2 of 5 cases and likewise to the second.
_CASES = _NUM_VALUES * 5 * 5
_UINT16 = 1 << 16

Numbers = npt.NDArray[np.int32]
Masks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tables with a mask for each player: three arrays (n, n, number of tables), reviewers first, papers second."""

    tables: Numbers
    known: tuple[Masks, Masks]

    def deal(self, index: int, scales: tuple[float, float], game_id: str) -> Deal:
        """One of the tables as a deal."""
        first, second = (_rows(mask[:, :, index]) for mask in self.known)
        return Deal(_rows(self.tables[:, :, index]), (first, second), scales, *default_names(len(first)), game_id)


def deal(rng: random.Random, n: int, game_id: str) -> Deal:
    """A random deal of n reviewers and n papers in which talking pays. Raises UserError if n is not 2 to 10."""
    return replace(next(deals(rng, n)), game_id=game_id)


def deals(rng: random.Random, n: int, prefix: str = "") -> Iterator[Deal]:
    """Such deals without end, each independent of the others, called by the prefix and a number from 0. Many are dealt
    faster so than one by one. Raises UserError if n is not 2 to 10."""
    if not MIN_SIZE <= n <= MAX_SIZE:
        raise UserError(
            f"n is {n}, but matching games are dealt for n = {MIN_SIZE} to {MAX_SIZE}. The larger the game, the nearer "
            "a player comes to the optimum alone: talking pays in one table of 3,000 for n = 8, of 25,000 for n = 10."
        )
    number, bits = 0, np.random.PCG64(rng.getrandbits(128))
    while True:
        batch = draw(bits, n)
        for index in find_accepted(batch):
            yield relabel(batch.deal(index, (rng.uniform(1, 10), rng.uniform(1, 10)), f"{prefix}{number}"), rng)
            number += 1


def deals_of_seed(n: int, seed: int) -> Iterator[Deal]:
    """The deals of a seed, as files and environments have them, called by how they were dealt. Raises UserError as
    `deals`."""
    return deals(random.Random(f"matching-game/{VERSION}/{n}/{seed}"), n, f"{VERSION}-n{n}-seed{seed}-")


def split_of(deal: Deal) -> Split:
    """The split of a game, a function of its table."""
    return split_by_hash(repr(deal.table))


def relabel(deal: Deal, rng: random.Random) -> Deal:
    """The same game with its rows and its columns in a random order, under the same names.

    The rule keeps a table for the worth of a player's own assignment, and which of equal ones that is depends on the
    order of dealing (`Deal.own_best`): unshuffled, BLEU to Sofia, Electra to Ava and GloVe to Daniel is optimal in a
    third of the games of three papers instead of a sixth, so that who proposes just this earns without a word. All that
    does not depend on names stays distributed as it was.
    """
    # By `random()`, whose numbers are the same in every Python; the results of `sample` need not be.
    reviewers, papers = (sorted(range(deal.size), key=lambda _: rng.random()) for _ in range(2))

    def permute(grid: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(grid[reviewer][paper] for paper in papers) for reviewer in reviewers)

    first, second = deal.known
    order = tuple(map(reviewers.index, range(deal.size))), tuple(map(papers.index, range(deal.size)))
    return replace(deal, table=permute(deal.table), known=(permute(first), permute(second)), order=order)


def upstream_deal(seed: int, n: int = 8) -> Deal:
    """The deal that the published game makes of a seed: the same numbers from the same generators in the same order.

    After 10,001 tables that break the rule it takes any next one: for n = 8 some seeds give deals in
    which talking does not pay.
    """
    generator, scales = np.random.RandomState(seed), random.Random(seed)
    num_tries = 10_002
    for first in range(0, num_tries, _UPSTREAM_BATCH):
        size = min(_UPSTREAM_BATCH, num_tries - first)
        batch = _legacy_draw(generator, n, size)
        pairs = [(scales.uniform(1, 10), scales.uniform(1, 10)) for _ in range(size)]
        for index in find_accepted(batch):
            return batch.deal(index, pairs[index], f"upstream-{seed}")
    return batch.deal(size - 1, pairs[-1], f"upstream-{seed}")


def draw(bits: np.random.PCG64, n: int) -> Batch:
    """Independent tables of the distribution without the rule."""
    rest, who = _divmod(_uniform(bits, n * n * _BATCH).reshape(n, n, _BATCH), 25)
    return _batch(_divmod(rest, _NUM_VALUES)[1], who < 10, _divmod(who, 5)[1] < 2)


def _uniform(bits: np.random.PCG64, count: int) -> npt.NDArray[np.uint16]:
    """`count` integers of 16 bits, uniform below the largest multiple of _CASES."""
    below = _UINT16 - _UINT16 % _CASES
    numbers = np.empty(0, np.uint16)
    while len(numbers) < count:
        # A raw word of 64 bits gives four numbers, of which 1 in 122 is too high: 1/64 more is nearly always enough.
        raw = bits.random_raw((count - len(numbers)) // 4 * 65 // 64 + 16).astype("<u8", copy=False).view("<u2")
        numbers = np.concatenate([numbers, raw[raw < below]])
    return numbers[:count]


def _divmod(numbers: npt.NDArray[np.uint16], by: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """The quotients and remainders. `np.divmod` takes several times as long."""
    quotients = numbers // np.uint16(by)
    return quotients, numbers - quotients * np.uint16(by)


def _legacy_draw(generator: np.random.RandomState, n: int, size: int) -> Batch:
    """A batch of numbers in the order of numpy's old global generator: values, then both masks, table by table."""
    tables, first, second = [], [], []
    for _ in range(size):
        tables.append(generator.randint(0, _NUM_VALUES, (n, n)))
        first.append(generator.random_sample((n, n)) < 0.4)
        second.append(generator.random_sample((n, n)) < 0.4)
    return _batch(np.stack(tables, axis=-1), np.stack(first, axis=-1), np.stack(second, axis=-1))


def _batch(tables: npt.NDArray[Any], first: Masks, second: Masks) -> Batch:
    return Batch(np.where(first | second, tables.astype(np.int32), np.int32(UNKNOWN)), (first, second))


def find_accepted(batch: Batch) -> Iterator[int]:
    """The indices of the tables that are kept, in order: those in which talking pays."""
    # Each bound is sure, and dearer than the one before it but for fewer tables. The rule itself is last.
    tables, (first, second) = batch.tables, batch.known
    own = _least_own(tables, first)
    bound = np.minimum(tables.max(axis=0).sum(axis=0), tables.max(axis=1).sum(axis=0))  # cheap, and above the optimum
    left = np.flatnonzero(MARGIN * own < bound)
    best = optima(tables[:, :, left])
    hopeful = MARGIN * own[left] < best
    left, best = left[hopeful], best[hopeful]
    hopeful = MARGIN * _least_own(tables[:, :, left], second[:, :, left]) < best
    for index, highest in zip(left[hopeful].tolist(), best[hopeful].tolist(), strict=True):
        table = tables[:, :, index]
        if all(MARGIN * _own(table, known[:, :, index]) < highest for known in batch.known):
            yield index


def _own(table: Numbers, known: Masks) -> int:
    """The true value of the assignment that looks best to a player, as `Deal.own_best` finds it."""
    return int(table[optimum(np.where(known, table, UNKNOWN)), np.arange(len(table))].sum())


def _least_own(tables: Numbers, known: Masks) -> Numbers:
    """The worst true value, for each table, among the assignments that look best to a player with these masks."""
    above = len(tables) * MAX_VALUE + 1  # more than any assignment is worth: looks decide, and between equals the value
    looks = np.where(known, tables, np.int32(UNKNOWN))
    # The optimum of `looks * above - value` has the best looks and the least value, which is the remainder.
    return -optima(looks * np.int32(above) - tables) % above


def optima(weights: Numbers) -> Numbers:
    """The highest sum of an assignment for each of many tables, given as (n, n, number of tables).

    It is a dynamic program over sets of used columns (Held-Karp), whose inner loops are numpy's over all tables.
    """
    n, _, number = weights.shape
    # sums[used] is the best sum of the rows so far that takes the columns whose bits are set in `used`.
    sums = {0: np.zeros(number, weights.dtype)}
    candidate = np.empty(number, weights.dtype)
    for row in weights:
        longer: dict[int, Numbers] = {}
        for used, total in sums.items():
            for column in range(n):
                grown = used | 1 << column
                if grown == used:
                    continue
                if grown in longer:
                    np.add(total, row[column], out=candidate)
                    np.maximum(longer[grown], candidate, out=longer[grown])
                else:
                    longer[grown] = total + row[column]
        sums = longer
    return sums[(1 << n) - 1]


def _rows(cells: npt.NDArray[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in cells.tolist())
