"""Deals: always within the rule, the same for a seed, and distributed as blind rejection sampling distributes them."""

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice, permutations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import chisquare, ks_2samp, kstest

from slimrl.errors import UserError
from slimrl_envs.matching_game.rules.deal import UNKNOWN, Deal
from slimrl_envs.matching_game.rules.generator import (
    VERSION,
    deals,
    deals_of_seed,
    draw,
    find_hopeful,
    make_deal,
    optima,
    upstream_deal,
)

pytestmark = pytest.mark.slow

# Each of the six statistical tests below fails once in a thousand seeds where all is well; seeds are fixed.
ALPHA = 0.001
SIZE = 3
NUM_OURS, NUM_BLIND = 1200, 300

BlindGame = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.mark.parametrize(("n", "number"), [(2, 20), (3, 50), (5, 20), (8, 4)])
def test_every_deal_is_within_the_rule(n: int, number: int) -> None:
    found = list(islice(deals(random.Random(1), n, "game-"), number))
    assert all(deal.requires_communication and deal.size == n for deal in found)
    assert [deal.game_id for deal in found] == [f"game-{k}" for k in range(number)]
    assert len({deal.table for deal in found}) == number


def test_a_seed_gives_the_same_deals_everywhere() -> None:
    found = next(deals(random.Random(0), 2))
    assert found == next(deals(random.Random(0), 2)) != next(deals(random.Random(1), 2))
    assert found.table == ((90, 13), (50, 7)) and found.order == ((1, 0), (1, 0))


def test_every_assignment_is_the_optimum_equally_often_so_that_no_name_and_no_place_tells_it() -> None:
    """Names stand in the same order in every game, so that a name is a place. Of games with one optimum."""
    counts: Counter[tuple[int, ...]] = Counter()
    for dealt in our_games():
        best = [order for order in permutations(range(SIZE)) if dealt.value(order) == dealt.best]
        counts.update(best if len(best) == 1 else ())
    assert len(counts) == 6 and sum(counts.values()) > 0.8 * NUM_OURS
    assert chisquare(list(counts.values())).pvalue > ALPHA
    assert {dealt.reviewers for dealt in our_games()} == {our_games()[0].reviewers}


def test_what_a_seed_deals_is_called_by_how_it_was_dealt_and_the_published_game_gives_up_after_10000_tables() -> None:
    first, second = islice(deals_of_seed(3, 4), 2)
    assert (first.game_id, second.game_id) == (f"{VERSION}-n3-seed4-0", f"{VERSION}-n3-seed4-1")
    assert next(deals_of_seed(3, 4)) == first != next(deals_of_seed(3, 5))
    assert not upstream_deal(4).requires_communication


@pytest.mark.parametrize("n", [-1, 0, 1, 11, 1000])
def test_sizes_that_cannot_be_dealt_are_refused(n: int) -> None:
    with pytest.raises(UserError, match=f"n is {n}, but matching games are dealt for n = 2 to 10"):
        next(deals(random.Random(0), n))


def test_optima_of_many_tables_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 8):
        weights = rng.integers(-1000, 1000, (n, n, 25), dtype=np.int32)
        best = [weights[..., k][linear_sum_assignment(weights[..., k], maximize=True)].sum() for k in range(25)]
        assert optima(weights).tolist() == best
        assert optima(weights[..., :0]).tolist() == []


@pytest.mark.parametrize(("n", "number"), [(2, 400), (3, 400), (4, 400), (8, 100)])
def test_no_table_that_keeps_the_rule_is_left_out_by_the_fast_judgement_of_a_batch(n: int, number: int) -> None:
    tables, *masks = draw(np.random.PCG64(n), n)
    hopeful = list(find_hopeful(tables, *masks))

    def keeps_the_rule(index: int) -> bool:
        return make_deal(tables[..., index], [mask[..., index] for mask in masks]).requires_communication

    assert any(map(keeps_the_rule, hopeful))
    assert not any(map(keeps_the_rule, {*range(number)} - {*hopeful}))


def test_cells_are_uniform_and_known_independently_with_probability_two_fifths() -> None:
    tables, first, second = (array.ravel() for array in draw(np.random.PCG64(0), 4))
    seen = first | second
    assert set(tables[~seen].tolist()) == {UNKNOWN}
    counts = np.bincount(tables[seen], minlength=100)
    assert len(counts) == 100 and chisquare(counts).pvalue > ALPHA
    both = Counter(zip(first.tolist(), second.tolist(), strict=True))
    order = [(True, True), (True, False), (False, True), (False, False)]
    expected = [len(seen) * share for share in (0.16, 0.24, 0.24, 0.36)]
    assert chisquare([both[case] for case in order], expected).pvalue > ALPHA


@cache
def our_games() -> tuple[Deal, ...]:
    return tuple(islice(deals(random.Random(3), SIZE), NUM_OURS))


@cache
def blind_games() -> tuple[BlindGame, ...]:
    """What the rules say, word by word: draw a table, and throw it away if talking does not pay."""
    return tuple(islice(blindly(np.random.default_rng(3)), NUM_BLIND))


def blindly(rng: np.random.Generator) -> Iterator[BlindGame]:
    while True:
        table = rng.integers(0, 100, (SIZE, SIZE))
        first, second = rng.random((2, SIZE, SIZE)) < 0.4
        table[~first & ~second] = 50
        if 1.25 * own(table, first) < best(table) and 1.25 * own(table, second) < best(table):
            yield table, first, second


def best(table: np.ndarray) -> int:
    return int(table[linear_sum_assignment(table, maximize=True)].sum())


def own(table: np.ndarray, known: np.ndarray) -> int:
    return int(table[linear_sum_assignment(np.where(known, table, 50), maximize=True)].sum())


def test_deals_are_distributed_as_those_of_blind_sampling() -> None:
    """The best scores, the shares found alone, the numbers of known cells, and the scales, which are uniform."""
    ours, blind = our_games(), blind_games()
    statistics = (
        ([d.best for d in ours], [best(table) for table, _, _ in blind]),
        (
            [d.score(d.own_best(player)) for d in ours for player in (0, 1)],
            [own(table, known) / best(table) for table, *masks in blind for known in masks],
        ),
        ([int(np.sum(mask)) for d in ours for mask in d.known], [int(m.sum()) for _, *masks in blind for m in masks]),
    )
    assert all(ks_2samp(*pair).pvalue > ALPHA for pair in statistics)
    assert kstest([scale for d in ours for scale in d.scales], "uniform", (1, 9)).pvalue > ALPHA
