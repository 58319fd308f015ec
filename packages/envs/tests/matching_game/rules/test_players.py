"""What proposals at random, by one's own view, and after talking are worth: the environment rewards talking."""

import random
from itertools import repeat
from statistics import fmean
from typing import Any

import pytest

from packages.envs.tests.matching_game.rules.deals import against_shy, agreeable, mean_reward, play_out, some_deals
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MatchingGame, Propose, Say, usual_turns
from slimrl_envs.matching_game.rules.generator import upstream_deal
from slimrl_envs.matching_game.rules.players import SCRIPTS, Asker, Stubborn, propose_at_random
from slimrl_envs.matching_game.rules.protocol import Player, parse_heard


def rewards(deals: tuple[Deal, ...], players: list[tuple[Player, Player]]) -> list[float]:
    return [play_out(MatchingGame(deal), pair) for deal, pair in zip(deals, players, strict=True)]


def random_proposals(deals: tuple[Deal, ...]) -> list[float]:
    return rewards(deals, [(propose_at_random(d, random.Random(d.game_id)), agreeable(d)) for d in deals])


def own_proposals(deals: tuple[Deal, ...], seat: int) -> list[float]:
    pairs = [(Stubborn(deal, repeat(deal.own_best(seat)), num_again=0), agreeable(deal)) for deal in deals]
    return rewards(deals, [(own, other) if seat == 0 else (other, own) for own, other in pairs])


def standard_errors(values: list[float], mark: float) -> float:
    """How many standard errors the mean is from a mark."""
    mean = fmean(values)
    variance = fmean([(value - mean) ** 2 for value in values])
    return abs(mean - mark) / (variance / len(values)) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deals", "at_random", "low", "high"),
    [
        (lambda: some_deals(8, 40), 0.613, 0.75, 0.79),
        (lambda: [upstream_deal(seed) for seed in range(6)], 0.613, 0.70, 0.82),
        (lambda: some_deals(3, 40), 0.71, 0.6, 0.8),
        (lambda: some_deals(10, 4), 0.6, 0.7, 0.8),
    ],
)
def test_the_marks_of_reference_are_met(deals: Any, at_random: float, low: float, high: float) -> None:
    """0.613 at random and 0.775 by one's own view over upstream's first 200 seeds, of which some break the rule that
    talking pays; by the rule alone the latter is a little lower."""
    dealt = tuple(deals())
    assert standard_errors(random_proposals(dealt), at_random) < 3
    assert low < fmean([*own_proposals(dealt, 0), *own_proposals(dealt, 1)]) < high


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "num", "seat"), [(2, 60, 0), (3, 60, 1), (4, 40, 0), (8, 25, 1)])
def test_who_asks_gets_from_a_shy_partner_what_nobody_gets_without_listening(size: int, num: int, seat: int) -> None:
    deals, turns = some_deals(size, num), usual_turns(size)
    asked = mean_reward([against_shy(deal, Asker(deal, seat, turns), seat, turns) for deal in deals])
    planned = mean_reward([against_shy(deal, SCRIPTS["planner"](deal, seat, turns), seat, turns) for deal in deals])
    own = mean_reward([against_shy(deal, SCRIPTS["own-view"](deal, seat, turns), seat, turns) for deal in deals])
    same = mean_reward([against_shy(deal, SCRIPTS["constant"](deal, seat, turns), seat, turns) for deal in deals])
    assert asked > 0.8 and planned > (0.75 if size <= 3 else 0.65)
    assert own < min(asked, planned, 0.79) and same < 0.65


def test_the_asker_keeps_to_its_turns_and_repeats_neither_words_nor_proposals() -> None:
    for deal in some_deals(4, 20):
        game = against_shy(deal, Asker(deal, 0, 16), 0)
        acts = [act for player, act in game.history if player == 0]
        said = [act.text for act in acts if isinstance(act, Say)]
        made = [act.assignment for act in acts if isinstance(act, Propose)]
        assert len(said) == len(set(said)) and all(text.endswith("?") for text in said)
        assert len(made) == len(set(made)) and game.num_errors == [0, 0]


def test_the_asker_proposes_while_there_is_time_even_in_a_short_game() -> None:
    for deal in some_deals(3, 5):
        for max_turns in (2, 3, 4, 7):
            for seat in (0, 1):
                game = MatchingGame(deal, max_turns)
                asker = Asker(deal, seat, max_turns)
                play_out(game, (asker, agreeable(deal)) if seat == 0 else (agreeable(deal), asker))
                assert game.agreed is not None


def test_the_asker_answers_what_it_is_asked() -> None:
    deal = some_deals(4, 1)[0]
    reply = Asker(deal, 0, 16).reply("[message] What is your score for Ava and BLEU?")
    assert str(deal.seen(0).get((0, 0), "I do not know")) in reply and reply.endswith("?")


def test_a_player_knows_nothing_but_what_it_sees() -> None:
    """Deals that look the same to a player and differ elsewhere: it says the same."""
    for deal in some_deals(4, 5):
        table = tuple(
            tuple(v if a else (7 if b else 50) for v, a, b in zip(*row, strict=True))
            for row in zip(deal.table, *deal.known, strict=True)
        )
        other = Deal(table, deal.known, (deal.scales[0], 1.5), deal.papers, deal.reviewers, "other")
        first, second = Asker(deal, 0, 16), Asker(other, 0, 16)
        for heard in ("", "[message] 12.", "[reject]\n\n[message] no", "[message] I do not know Ava for BLEU."):
            assert first.reply(heard) == second.reply(heard)


PROPOSAL = "[propose] Proposal:\nBLEU: Sofia\nElectra: Ava\nGloVe: Daniel"


@pytest.mark.parametrize(
    ("heard", "act"),
    [
        ("", None),
        ("[message] hi\nthere", Say("hi\nthere")),
        ("[reject]\n\n[message] no", Say("no")),
        ("[accept]", Say("[accept]")),
        (PROPOSAL, Propose((2, 0, 1))),
        (f"[reject]\n\n{PROPOSAL}", Propose((2, 0, 1))),
    ],
)
def test_what_is_heard_is_a_message_a_proposal_or_nothing(heard: str, act: Say | Propose | None) -> None:
    assert parse_heard(heard, some_deals(3, 1)[0]) == act
