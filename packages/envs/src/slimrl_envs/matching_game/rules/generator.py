"""Samples deals from the published distribution of matching games that require communication, exactly and fast.

Values of a table are uniform on 0..99, each player sees each cell with probability 2/5, and scales are uniform on
1..10. A deal is kept only if `Deal.requires_communication` is True. This rule keeps about one table in 3,000 for n = 8,
one in 170 for n = 3, and one in 900 for n = 2. Rows and columns of a kept deal are then put into a random order, so
that the rule favours no names (`relabel`). This module does not depend on turns or text.

The distribution is exact because this is plain rejection sampling: tables are drawn independently, and tables that
break the rule are left out. Sampling is fast because a safe bound is computed for whole batches. A player's own
assignment is one of the assignments that look best to the player, so its value is at least the lowest value of these
assignments. If even the lowest value is too high, the table breaks the rule. The rule itself is checked only for the
few remaining tables. Arrays of tables have the axes (n, n, number of tables), reviewers first.

The random bits are from a bit generator of numpy, which gives the same stream in all versions. Its seed is drawn from
the caller's generator, so a seed gives the same deals on every machine.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from slimrl.environments.splits import split_by_hash
from slimrl.types import Split
from slimrl_envs.matching_game.rules.deal import MARGIN, MAX_VALUE, UNKNOWN, Deal, default_names

MIN_SIZE, MAX_SIZE = 2, 10  # with more papers, talking pays in less than one table of 25,000
VERSION = "v2"
"""The version of the algorithm that makes deals from a seed. The names of deals contain it, so that games of two
versions are not confused."""
UPSTREAM_TRIES = 10_002  # the maximum number of tables that the published game draws
_BATCH = 8192  # the cheapest size: with fewer tables, calls of numpy dominate; more tables leave the cache
_NUM_VALUES = MAX_VALUE + 1
# A cell is one of 100 values, known to the first player in 2 of 5 cases and likewise to the second.
_CASES = _NUM_VALUES * 5 * 5
_BELOW = 2**16 // _CASES * _CASES

Numbers = npt.NDArray[np.int32]
Masks = npt.NDArray[np.bool_]


def deals(rng: random.Random, n: int, prefix: str = "") -> Iterator[Deal]:
    """Yield an endless stream of independent deals of n papers that require communication. A deal's name is the prefix
    and a number from 0."""
    number, bits = 0, np.random.PCG64(rng.getrandbits(128))
    while True:
        tables, *masks = draw(bits, n)
        for index in find_hopeful(tables, *masks):
            dealt = make_deal(tables[..., index], [mask[..., index] for mask in masks])
            if dealt.requires_communication:
                scales = rng.uniform(1, 10), rng.uniform(1, 10)
                yield relabel(replace(dealt, scales=scales, game_id=f"{prefix}{number}"), rng)
                number += 1


def deals_of_seed(n: int, seed: int) -> Iterator[Deal]:
    """Yield the deals of a seed, in files and in environments alike. The names contain the version, `n` and the
    seed."""
    return deals(random.Random(f"matching-game/{VERSION}/{n}/{seed}"), n, f"{VERSION}-n{n}-seed{seed}-")


def split_of(deal: Deal) -> Split:
    """Return the split of a game. One game in five is held out. The split depends only on the table, so it is the same
    under all settings."""
    return split_by_hash(repr(deal.table))


def make_deal(table: npt.NDArray[Any], masks: Sequence[Masks]) -> Deal:
    """Return a deal with one table, the masks of both players, default names, and scales of 1."""
    first, second = (tuple(map(tuple, mask.tolist())) for mask in masks)
    return Deal(tuple(map(tuple, table.tolist())), (first, second), (1.0, 1.0), *default_names(len(table)), "")


def relabel(deal: Deal, rng: random.Random) -> Deal:
    """Return the game with its rows and columns in a random order. The lists of names stay the same.

    The rule of the deal depends on the order of rows and columns, because `Deal.own_best` uses the order to choose
    between equally good assignments. So without the shuffle some assignments are optimal too often. For example, BLEU
    to Sofia, Electra to Ava and GloVe to Daniel is optimal in a third of the games of three papers instead of a sixth.
    A player that always proposes this assignment would earn without talking. The shuffle changes only the distribution
    of names.
    """
    # The numbers of `random()` are the same in every version of Python; the results of `sample` need not be.
    reviewers, papers = (sorted(range(deal.size), key=lambda _: rng.random()) for _ in range(2))

    def permute(grid: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
        return tuple(tuple(grid[reviewer][paper] for paper in papers) for reviewer in reviewers)

    first, second = map(permute, deal.known)
    order = tuple(map(reviewers.index, range(deal.size))), tuple(map(papers.index, range(deal.size)))
    return replace(deal, table=permute(deal.table), known=(first, second), order=order)


def upstream_deal(seed: int, n: int = 8) -> Deal:
    """Return the deal that the published game makes from a seed, with the same numbers from the same random generators.

    After 10,001 tables that break the rule, the published game takes the next table without checking it. So for n = 8
    some seeds give deals in which talking does not pay.
    """
    numbers, rng = np.random.RandomState(seed), random.Random(seed)
    for _ in range(UPSTREAM_TRIES):
        table, *masks = numbers.randint(0, 100, (n, n)), *(numbers.random_sample((n, n)) < 0.4 for _ in range(2))
        scales = rng.uniform(1, 10), rng.uniform(1, 10)
        dealt = make_deal(np.where(masks[0] | masks[1], table, UNKNOWN), masks)
        if dealt.requires_communication:
            break
    return replace(dealt, scales=scales, game_id=f"upstream-{seed}")


def draw(bits: np.random.PCG64, n: int) -> tuple[Numbers, Masks, Masks]:
    """Draw `_BATCH` independent tables, before the rule is applied. Return the tables, and the masks of both
    players."""
    count, numbers = n * n * _BATCH, np.empty(0, np.uint16)
    while len(numbers) < count:
        # A raw word of 64 bits gives four numbers. One in 122 is too high, so 1/64 more words are nearly always enough.
        raw = bits.random_raw((count - len(numbers)) // 4 * 65 // 64 + 16).astype("<u8", copy=False).view("<u2")
        numbers = np.concatenate([numbers, raw[raw < _BELOW]])
    # `//` and a product take a fraction of the time of `np.divmod`.
    values, five, hundred = numbers[:count].reshape(n, n, _BATCH), np.uint16(5), np.uint16(_NUM_VALUES)
    rest = values // np.uint16(25)
    who = values - rest * np.uint16(25)
    first, second = who < 10, who - who // five * five < 2
    tables = (rest - rest // hundred * hundred).astype(np.int32)
    return np.where(first | second, tables, np.int32(UNKNOWN)), first, second


def find_hopeful(tables: Numbers, first: Masks, second: Masks) -> Iterator[int]:
    """Yield, in order, the indices of the tables that may obey the rule. All other tables break the rule."""
    # All bounds are safe. Each bound costs more than the previous bound, but is computed for fewer tables.
    bound = np.minimum(tables.max(axis=0).sum(axis=0), tables.max(axis=1).sum(axis=0))  # cheap, and above the optimum
    own = _least_own(tables, first)
    left = np.flatnonzero(MARGIN * own < bound)
    best = optima(tables[..., left])
    hopeful = MARGIN * own[left] < best
    left, best = left[hopeful], best[hopeful]
    yield from left[MARGIN * _least_own(tables[..., left], second[..., left]) < best].tolist()


def _least_own(tables: Numbers, known: Masks) -> Numbers:
    """Return the lowest true value, for each table, among the assignments that look best to a player. `known` is the
    mask of the cells that the player sees."""
    above = len(tables) * MAX_VALUE + 1  # above any worth, so that the value decides only between equal looks
    looks = np.where(known, tables, np.int32(UNKNOWN))
    # The optimum of `looks * above - value` has the best looks and the least value, which is the remainder.
    return -optima(looks * np.int32(above) - tables) % above


def optima(weights: Numbers) -> Numbers:
    """Return the highest value of an assignment, for each of many tables.

    This is a dynamic program over sets of used columns (Held-Karp). numpy computes each step for all tables at once.
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
