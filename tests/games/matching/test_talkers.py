"""What proposals at random, by one's own view, and after talking are worth: the environment rewards talking."""

import random
from statistics import fmean

import pytest

from slimrl.games.matching.deal import Deal
from slimrl.games.matching.game import MatchingGame, Propose, Say
from slimrl.games.matching.generator import upstream_deal
from slimrl.games.matching.protocol import written
from slimrl.games.matching.talkers import (
    Agreeable,
    Asker,
    OwnViewTalker,
    Player,
    RandomTalker,
    Talker,
    heard_act,
    play_out,
)  # fmt: skip
from tests.games.matching.deals import against_shy, mean_reward, some_deals


def rewards(deals: tuple[Deal, ...], players: list[tuple[Player, Player]]) -> list[float]:
    return [play_out(MatchingGame(deal), pair) for deal, pair in zip(deals, players, strict=True)]


def random_proposals(deals: tuple[Deal, ...]) -> list[float]:
    return rewards(deals, [(RandomTalker(d, 0, random.Random(d.game_id)), Agreeable(d)) for d in deals])


def own_proposals(deals: tuple[Deal, ...], seat: int) -> list[float]:
    pairs = [(OwnViewTalker(deal, seat), Agreeable(deal)) for deal in deals]
    return rewards(deals, [(own, other) if seat == 0 else (other, own) for own, other in pairs])


def two_talkers(deals: tuple[Deal, ...]) -> list[float]:
    return rewards(deals, [(Talker(deal, 0), Talker(deal, 1)) for deal in deals])


def standard_errors(values: list[float], mark: float) -> float:
    """How many standard errors the mean is from a mark."""
    mean = fmean(values)
    variance = fmean([(value - mean) ** 2 for value in values])
    return abs(mean - mark) / (variance / len(values)) ** 0.5


def test_the_marks_of_reference_are_met_at_eight() -> None:
    """0.613 at random and 0.775 by one's own view over upstream's first 200 seeds, of which some break the rule that
    talking pays; by the rule alone the latter is a little lower."""
    deals = some_deals(8, 40)
    assert standard_errors(random_proposals(deals), 0.613) < 3
    for seat in (0, 1):
        assert 0.75 < fmean(own_proposals(deals, seat)) < 0.79
    assert fmean(two_talkers(deals)) > 0.97


def test_the_marks_of_reference_are_met_by_upstream_s_own_deals() -> None:
    deals = tuple(upstream_deal(seed) for seed in range(6))
    own = [*own_proposals(deals, 0), *own_proposals(deals, 1)]
    assert standard_errors(random_proposals(deals), 0.613) < 3
    assert standard_errors(own, 0.775) < 3
    assert fmean(two_talkers(deals)) > 0.97


@pytest.mark.parametrize("size", [3, 4, 10])
def test_talking_is_worth_most_at_every_size(size: int) -> None:
    deals = some_deals(size, 40 if size < 8 else 4)
    talked, own = two_talkers(deals), [*own_proposals(deals, 0), *own_proposals(deals, 1)]
    assert fmean(talked) > 0.95 > 0.80 > fmean(own)
    assert min(talked) > 0  # they always agree


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize(("size", "num"), [(3, 40), (4, 40), (8, 25)])
def test_the_asker_gets_from_a_shy_partner_what_nobody_gets_without_asking(size: int, num: int, seat: int) -> None:
    deals = some_deals(size, num)
    asked = [against_shy(deal, Asker(deal, seat), seat) for deal in deals]
    own = [against_shy(deal, OwnViewTalker(deal, seat), seat) for deal in deals]
    told = [against_shy(deal, Talker(deal, seat), seat) for deal in deals]
    assert mean_reward(asked) > (0.85 if size < 8 else 0.78)
    assert mean_reward(own) < 0.1  # what looks best to one alone is poor in the other's eyes, and it is not accepted
    assert mean_reward(told) < 0.3  # telling is not asking: a shy partner gives nothing for it


def test_the_asker_keeps_to_its_turns_and_its_words() -> None:
    for deal in some_deals(4, 10):
        game = against_shy(deal, Asker(deal, 0), 0)
        said = [act.text for player, act in game.history if player == 0 and isinstance(act, Say)]
        assert len(said) == len(set(said)) and all(text.endswith("?") for text in said)
        assert game.num_errors == (0, 0)


def test_the_asker_proposes_while_there_is_time_even_in_a_short_game() -> None:
    for deal in some_deals(3, 5):
        for max_turns in (2, 3, 4, 7):
            for seat in (0, 1):
                game = MatchingGame(deal, max_turns)
                asker = Asker(deal, seat, max_turns)
                play_out(game, (asker, Agreeable(deal)) if seat == 0 else (Agreeable(deal), asker))
                assert game.agreed is not None


def test_the_asker_never_makes_the_same_proposal_twice_while_there_is_another() -> None:
    for deal in some_deals(4, 20):
        made = [act.assignment for _, act in against_shy(deal, Asker(deal, 0), 0).history if isinstance(act, Propose)]
        assert len(made) == len(set(made))


def test_the_asker_answers_what_it_is_asked() -> None:
    deal = some_deals(4, 1)[0]
    reply = Asker(deal, 0).reply("[message] What is your score for Ava and BLEU?")
    score = deal.seen(0)[0][0]
    assert ("I do not know" if score is None else str(score)) in reply and reply.endswith("?")


def test_a_player_knows_nothing_but_what_it_sees() -> None:
    """Deals that look the same to a player and differ elsewhere: it says the same."""
    for deal in some_deals(4, 5):
        table = tuple(
            tuple(v if a else (7 if b else 50) for v, a, b in zip(*row, strict=True))
            for row in zip(deal.table, *deal.known, strict=True)
        )
        other = Deal(table, deal.known, (deal.scales[0], 1.5), deal.papers, deal.reviewers, "other")
        for kind in (Talker, Asker):
            first, second = kind(deal, 0), kind(other, 0)
            for heard in ("", "[message] 12.", "[reject]\n\n[message] no", "[message] I do not know Ava for BLEU."):
                assert first.reply(heard) == second.reply(heard)


def test_what_is_heard_is_a_message_a_proposal_or_nothing() -> None:
    deal = some_deals(3, 1)[0]
    assert heard_act("", deal) is None
    assert heard_act("[message] hi\nthere", deal) == Say("hi\nthere")
    assert heard_act("[reject]\n\n[message] no", deal) == Say("no")
    proposal = Propose((2, 0, 1))
    assert heard_act(written(proposal, deal), deal) == heard_act(f"[reject]\n\n{written(proposal, deal)}", deal)
    assert heard_act(written(proposal, deal), deal) == proposal
    assert heard_act("[accept]", deal) == Say("[accept]")


def test_a_player_who_only_errs_ends_the_game_with_nothing() -> None:
    class Erring:
        def reply(self, heard: str) -> str:
            return "nonsense"

    deal = some_deals(3, 1)[0]
    game = MatchingGame(deal)
    assert play_out(game, (Erring(), Agreeable(deal))) == 0.0
    assert game.too_many_errors
