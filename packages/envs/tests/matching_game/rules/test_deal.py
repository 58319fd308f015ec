"""What players see, and what an assignment is worth."""

import random
from dataclasses import replace
from itertools import permutations

import pytest

from slimrl_envs.matching_game.rules.deal import PAPERS, REVIEWERS, Deal, default_names
from slimrl_envs.matching_game.rules.generator import relabel, upstream_deal

ALL, NONE = ((True, True), (True, True)), ((False, False), (False, False))


def small(**changes: object) -> Deal:
    """A deal of two papers, all of it known to both."""
    papers, reviewers = default_names(2)
    return replace(Deal(((90, 20), (10, 70)), (ALL, ALL), (2.0, 1.5), papers, reviewers, "small"), **changes)


def any_deal(rng: random.Random, n: int) -> Deal:
    """A deal of the distribution without the rule."""
    known = tuple(tuple(tuple(rng.random() < 0.4 for _ in range(n)) for _ in range(n)) for _ in range(2))
    table = tuple(
        tuple(rng.randrange(100) if known[0][r][p] or known[1][r][p] else 50 for p in range(n)) for r in range(n)
    )
    return Deal(table, known, (rng.uniform(1, 10), rng.uniform(1, 10)), *default_names(n), "any")


def naive_best(deal: Deal) -> int:
    return max(sum(deal.table[r][p] for p, r in enumerate(order)) for order in permutations(range(deal.size)))


@pytest.mark.parametrize(
    ("seed", "n", "best", "identity", "own", "scales"),
    [
        (0, 8, 604, 360, [455, 475], (3.152086470460766, 9.711752375886025)),
        (42, 8, 637, 413, None, (3.8431154316634357, 4.260428107971317)),
        (1, 3, 185, 128, None, None),
        (7, 4, 258, 132, None, None),
    ],
)
def test_golden_games_are_what_the_published_rules_say(
    seed: int, n: int, best: int, identity: int, own: list[int] | None, scales: tuple[float, float] | None
) -> None:
    deal = upstream_deal(seed, n)
    assert deal.best == deal.value(deal.best_assignment) == best and deal.requires_communication
    assert deal.value(tuple(range(n))) == identity and deal.score(tuple(range(n))) == pytest.approx(identity / best)
    assert scales in (None, deal.scales) and own in (None, [deal.value(deal.own_best(player)) for player in (0, 1)])


def test_the_optimum_is_that_of_trying_every_assignment() -> None:
    rng = random.Random(0)
    for n in (2, 3, 4, 5):
        for _ in range(10):
            deal = any_deal(rng, n)
            assert deal.best == deal.value(deal.best_assignment) == naive_best(deal)


def test_what_looks_best_alone_counts_50_for_the_unseen_and_talking_pays_if_that_is_poor() -> None:
    deal = small(table=((30, 90), (90, 30)), known=(((True, False), (False, True)), ALL))
    assert [deal.own_best(player) for player in (0, 1)] == [(1, 0)] * 2 and not deal.requires_communication
    blind = (((False, True), (False, True)), ((True, False), (True, False)))
    deal = small(table=((90, 60), (20, 90)), known=blind)
    assert [deal.value(deal.own_best(player)) for player in (0, 1)] == [180, 180] and deal.best == 180


def test_between_equals_the_order_of_the_deal_decides_and_not_that_of_the_table() -> None:
    deal = small(table=((50, 50), (50, 50)), known=(NONE, NONE))
    assert deal.own_best(0) == (0, 1)
    assert replace(deal, order=((1, 0), (0, 1))).own_best(0) == (1, 0)
    assert replace(deal, order=((1, 0), (1, 0))).own_best(0) == (0, 1)


def test_a_deal_in_another_order_is_the_same_game() -> None:
    rng = random.Random(1)
    for n in (2, 3, 5):
        for _ in range(20):
            deal = any_deal(rng, n)
            other = relabel(deal, rng)
            assert sorted(map(sorted, other.table)) == sorted(map(sorted, deal.table)) and other.best == deal.best
            assert (other.papers, other.reviewers, other.scales) == (deal.papers, deal.reviewers, deal.scales)
            for player in (0, 1):
                assert other.value(other.own_best(player)) == deal.value(deal.own_best(player))
            assert other.requires_communication == deal.requires_communication


def test_where_all_values_are_zero_every_agreement_is_an_optimum() -> None:
    assert small(table=((0, 0), (0, 0))).score((1, 0)) == 1.0


@pytest.mark.parametrize("assignment", [(0,), (0, 0), (0, 2), (), (0, 1, 2)])
def test_half_an_assignment_has_no_value(assignment: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="does not give 2 papers a reviewer each"):
        small().value(assignment)


def test_a_player_sees_its_scaled_values_as_csv_and_nothing_else() -> None:
    deal = small(table=((90, 50), (10, 70)), known=(((True, False), (True, False)), ((False, False), (False, True))))
    assert deal.seen(0) == {(0, 0): 180, (1, 0): 20} and deal.seen(1) == {(1, 1): 105}
    assert small(table=((29, 20), (10, 70)), scales=(3.152086470460766, 1.0)).seen(0)[0, 0] == 91  # rounded down
    assert deal.table_text(0) == "Reviewer Paper Similarity Scores:\n,BLEU,Electra\nAva Li,180,\nDaniel Nguyen,20,"
    assert deal.table_text(1) == "Reviewer Paper Similarity Scores:\n,BLEU,Electra\nAva Li,,\nDaniel Nguyen,,105"


def test_short_names_are_titles_up_to_the_colon_and_first_names_nobody_shares() -> None:
    deal = upstream_deal(2)
    assert deal.short_papers == ("BLEU", "Electra", "GloVe", "GLUE", "LLaMA", "RoBERTa", "QuAC", "SWAG")
    assert deal.short_reviewers == ("Ava", "Daniel", "Sofia", "Andrei", "Morgan", "Joseph", "Ethan", "Noah")
    assert small(reviewers=("Noah Lee", "noah Wilson")).short_reviewers == ("Noah Lee", "noah Wilson")


def test_beyond_eight_names_are_numbered() -> None:
    papers, reviewers = default_names(10)
    assert papers == (*PAPERS, "Paper 9", "Paper 10") and reviewers == (*REVIEWERS, "Reviewer9", "Reviewer10")
