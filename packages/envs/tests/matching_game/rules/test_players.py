"""Scripted players: their beliefs, their plans and notes, and what proposals without and after talking are worth."""

import random
import re
from dataclasses import replace
from itertools import repeat
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from packages.envs.tests.matching_game.rules.deals import Agreeable, against_shy, mean_reward, play_out, some_deals
from slimrl_envs.matching_game.episode import notes
from slimrl_envs.matching_game.rules.beliefs import likely_scale
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MAX_HEARD_CHARS, MatchingGame, Player, Propose, Say, usual_turns
from slimrl_envs.matching_game.rules.language import Parser
from slimrl_envs.matching_game.rules.players import SCRIPTS, Asker, Planner, Stubborn, propose_at_random
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner

NUMBERED = re.compile(r"(\w+) (\w+) (low )?(\d+)")


# Beliefs.


@pytest.mark.parametrize("scale", [1.0, 1.7, 3.152086470460766, 6.5, 9.711752375886025])
def test_a_table_of_numbers_tells_its_scale(scale: float) -> None:
    rng = random.Random(0)
    values = [rng.randrange(100) for _ in range(26)]
    assert likely_scale([int(value * scale) for value in values]) == pytest.approx(scale, abs=0.05)
    assert likely_scale([int(80 * scale)], [80]) == pytest.approx(scale, abs=0.02)
    assert 1 <= likely_scale([5000, 7, 123456]) <= 10 and 1 <= likely_scale([]) <= 10  # which no scale explains


# The planner.


def three_by_three(*known: tuple[int, int], scale: float = 10.0) -> Deal:
    """The first player sees these pairs alone, of 10, 20 ... 90 times `scale`; the other one all others."""
    seen = tuple(tuple((r, p) in known for p in range(3)) for r in range(3))
    unseen = tuple(tuple(not cell for cell in row) for row in seen)
    papers, reviewers = ("BLEU", "Electra", "GloVe"), ("Ava Li", "Bo Ek", "Cy Fox")
    return Deal(((10, 20, 30), (40, 50, 60), (70, 80, 90)), (seen, unseen), (scale, 1.0), papers, reviewers, "g")


@pytest.mark.parametrize(
    ("deal", "thought"),
    [
        pytest.param(
            three_by_three((2, 2), (0, 0)),
            "Cy GloVe 900. Ava BLEU low 100, Bo Electra ? or Ava Electra ?, Bo BLEU ?: "
            "Bo BLEU ?, Ava Electra ?, Cy GloVe.",
            id="the largest number is in the plan, and a low one is not",
        ),
        pytest.param(
            three_by_three((2, 2)),
            "Cy GloVe 900. Ava BLEU ?, Bo Electra ? or Ava Electra ?, Bo BLEU ?: Ava BLEU ?, Bo Electra ?, Cy GloVe.",
            id="of two ways that look the same, the one in the order of the table",
        ),
        pytest.param(
            three_by_three((0, 0), (1, 1), scale=1.0),
            "Ava Electra ?. Bo BLEU ?, Cy GloVe ? or Bo GloVe ?, Cy BLEU ?: Bo BLEU ?, Ava Electra ?, Cy GloVe ?.",
            id="where all numbers are low it begins with a pair that has none",
        ),
        pytest.param(
            three_by_three((0, 0), (0, 1), (0, 2), scale=2.0),
            "Ava GloVe low 60. Bo BLEU ?, Cy Electra ? or Bo Electra ?, Cy BLEU ?: Bo BLEU ?, Cy Electra ?, Ava GloVe.",
            id="of low numbers the largest, if there must be one",
        ),
    ],
)
def test_the_planner_writes_down_how_it_comes_to_a_plan(deal: Deal, thought: str) -> None:
    player = Planner(deal, 0, 12, 1)
    player.act(None)
    assert player.thought == thought


def test_an_answer_changes_the_plan_and_a_pair_that_nobody_knows_is_not_asked_again() -> None:
    deal = three_by_three((2, 2))
    player = Planner(deal, 0, 12, 4)
    assert player.act(None) == Say("What is your score for Ava and BLEU?")
    player.act(Say("Ava for BLEU: 7."))
    assert player.thought.startswith("Cy GloVe 900. Ava BLEU low 7, ") and player.thought.endswith(
        ": Bo BLEU ?, Ava Electra ?, Cy GloVe."
    )
    player.act(Say("I do not know Bo for BLEU."))
    assert "Ava Electra ?, Bo BLEU unknown: Bo BLEU, Ava Electra ?, Cy GloVe." in player.thought
    player.act(Say("Ava for Electra: 950."))
    assert player.thought.startswith("Ava Electra 950. ")


# A player's notes: every number that it has, once, low ones apart, and the pairs that it asked for in vain.


def note(game: MatchingGame, player: int = 0) -> str:
    return notes(game, player, Parser(game.deal))


def noted(text: str) -> dict[tuple[str, str], int]:
    return {(reviewer, paper): int(number) for reviewer, paper, _, number in NUMBERED.findall(text)}


def test_all_that_a_partner_tells_is_noted_and_the_pairs_that_it_does_not_know() -> None:
    told = refused = 0
    for deal in some_deals(3, 20):
        game, asker = MatchingGame(deal), Asker(deal, 0, 12)
        shy = ShyPartner(deal, 1, random.Random(0))
        while isinstance(question := asker.act(game.heard()), Say):
            game.play(0, question)
            before = noted(note(game))
            game.play(1, shy.act(question))
            reviewer, paper = re.findall(r"for (\w+) and (\w+)\?", question.text)[0]
            cell = deal.short_reviewers.index(reviewer), deal.short_papers.index(paper)
            own, other = (deal.seen(player).get(cell) for player in (0, 1))
            after, known = noted(note(game)), own if own is not None else other
            assert list(after.values()) == sorted(after.values(), reverse=True)
            assert after == (before if known is None else before | {(reviewer, paper): known})
            assert (f"{reviewer} {paper}" in note(game).partition("No score: ")[2]) == (known is None)
            told, refused = told + (known is not None), refused + (known is None)
    assert told > 10 and refused > 10


def test_a_number_counts_in_a_sentence_that_has_one_pair_and_no_other_number() -> None:
    deal = some_deals(3, 1)[0]
    game = MatchingGame(deal)
    before = noted(note(game))
    (first, second, third, *_) = [pair for pair in map(deal.names, deal.cells) if pair not in before]
    game.play(0, Say(f"Hello, {' '.join(third)}: 77."))  # its own words tell it nothing
    told = f"{first[0]} has 701 for {first[1]}! For {second[1]}, {second[0]}: 702."
    game.play(1, Say(f"{told} {third[0]} has 5 for {third[1]}, or 6. And 7. {third[0]} 8."))
    assert noted(note(game)) == before | {first: 701, second: 702}
    game.play(0, Say("What do you know?"))
    game.play(1, Say(f"{'Hm. ' * (MAX_HEARD_CHARS // 4)}{third[0]} for {third[1]}: 777."))
    assert "777" not in note(game)  # the end of a long message is not heard


# The asker, and the worth of proposals.


def test_the_asker_keeps_to_its_turns_and_repeats_neither_words_nor_proposals() -> None:
    for deal in some_deals(4, 20):
        game = against_shy(deal, Asker(deal, 0, 16), 0)
        acts = [act for player, act in game.history if player == 0]
        said = [act.text for act in acts if isinstance(act, Say)]
        made = [act.assignment for act in acts if isinstance(act, Propose)]
        assert len(said) == len(set(said)) and all(text.endswith("?") for text in said)
        assert len(made) == len(set(made)) and game.num_errors == [0, 0]


def test_a_player_knows_nothing_but_its_own_view() -> None:
    """Deals that look the same to a player and differ elsewhere: it says the same."""
    for deal in some_deals(4, 5):
        rows = (zip(*row, strict=True) for row in zip(deal.table, *deal.known, strict=True))
        table = tuple(tuple(v if a else (7 if b else 50) for v, a, b in row) for row in rows)
        other = replace(deal, table=table, scales=(deal.scales[0], 1.5), order=((), ()))
        first, second = Asker(deal, 0, 16), Asker(other, 0, 16)
        for heard in (None, Say("12."), Say("no"), Say("I do not know Ava for BLEU.")):
            assert first.act(heard) == second.act(heard)


def rewards(deals: tuple[Deal, ...], players: list[tuple[Player, Player]]) -> list[float]:
    return [play_out(MatchingGame(deal), pair) for deal, pair in zip(deals, players, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deals", "at_random", "low", "high"),
    [
        (lambda: some_deals(8, 40), 0.613, 0.75, 0.79),
        (lambda: some_deals(3, 40), 0.71, 0.6, 0.8),
    ],
)
def test_the_marks_of_reference_are_met(deals: Any, at_random: float, low: float, high: float) -> None:
    """0.613 at random and 0.775 by one's own view over upstream's first 200 seeds, of which some break the rule that
    talking pays; by the rule alone the latter is a little lower."""
    dealt = tuple(deals())
    found = rewards(dealt, [(propose_at_random(d, random.Random(d.game_id)), Agreeable()) for d in dealt])
    assert abs(fmean(found) - at_random) < 3 * float(np.std(found)) / len(found) ** 0.5
    first, second = ([Stubborn(deal, repeat(deal.own_best(seat)), num_again=0) for deal in dealt] for seat in (0, 1))
    others = [Agreeable() for deal in dealt]
    own = [*rewards(dealt, [*zip(first, others, strict=True)]), *rewards(dealt, [*zip(others, second, strict=True)])]
    assert low < fmean(own) < high


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "num", "seat"), [(2, 60, 0), (3, 60, 1), (4, 40, 0), (8, 25, 1)])
def test_a_player_that_asks_a_shy_partner_earns_more_than_one_that_does_not_listen(
    size: int, num: int, seat: int
) -> None:
    turns, rng = usual_turns(size), random.Random(0)

    def mean(name: str) -> float:
        deals = some_deals(size, num)
        return mean_reward([against_shy(d, SCRIPTS[name](d, seat, turns, rng), seat, turns) for d in deals])

    asked, planned = mean("solver"), mean("planner")
    assert asked > 0.8 and planned > (0.75 if size <= 3 else 0.65)
    assert mean("own-view") < min(asked, planned, 0.79) and mean("constant") < 0.65
