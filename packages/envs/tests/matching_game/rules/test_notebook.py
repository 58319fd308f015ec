"""A player's notes: every number that it has, once, low ones apart, and what it asked for in vain."""

import random
import re

from packages.envs.tests.matching_game.rules.deals import some_deals
from slimrl_envs.matching_game.episode import notes
from slimrl_envs.matching_game.rules.beliefs import USUAL
from slimrl_envs.matching_game.rules.game import MatchingGame, Say
from slimrl_envs.matching_game.rules.parser import Parser
from slimrl_envs.matching_game.rules.players import Asker
from slimrl_envs.matching_game.rules.protocol import MAX_HEARD_CHARS
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner


def text_of(game: MatchingGame, player: int = 0) -> str:
    return notes(game, player, Parser(game.deal))


NOTED = re.compile(r"(\w+) (\w+) (\d+)")


def noted(text: str) -> dict[tuple[str, str], int]:
    return {(reviewer, paper): int(number) for reviewer, paper, number in NOTED.findall(text)}


def test_at_first_there_is_the_table_largest_number_first_and_low_ones_apart() -> None:
    for deal in some_deals(3, 20):
        for player in (0, 1):
            expected = {deal.names(cell): score for cell, score in deal.seen(player).items()}
            text = text_of(MatchingGame(deal), player)
            numbers = noted(text)
            assert numbers == expected and list(numbers.values()) == sorted(numbers.values(), reverse=True)
            first, _, low = text.partition("Low: ")
            assert first.startswith("You know: ") == bool(noted(first)) and "No score" not in text
            assert all(number >= USUAL for number in noted(first).values())
            assert all(number < USUAL for number in noted(low).values())


def test_all_that_a_partner_tells_is_noted_and_what_it_does_not_know() -> None:
    told = refused = 0
    for deal in some_deals(3, 20):
        game, asker = MatchingGame(deal), Asker(deal, 0, 12)
        shy = ShyPartner(deal, 1, random.Random(0))
        heard = ""
        while not (question := asker.reply(heard)).startswith("[propose]"):
            game.play(0, Say(question.removeprefix("[message] ")))
            before = noted(text_of(game))
            heard = shy.reply(question)
            game.play(1, Say(heard.removeprefix("[message] ")))
            reviewer, paper = re.findall(r"for (\w+) and (\w+)\?", question)[0]
            cell = deal.short_reviewers.index(reviewer), deal.short_papers.index(paper)
            own, other = (deal.seen(player).get(cell) for player in (0, 1))
            after, known = noted(text_of(game)), own if own is not None else other
            assert after == (before if known is None else before | {(reviewer, paper): known})
            assert (f"{reviewer} {paper}" in text_of(game).partition("No score: ")[2]) == (known is None)
            told, refused = told + (known is not None), refused + (known is None)
    assert told > 10 and refused > 10


def test_a_number_counts_in_a_sentence_that_has_one_pair_and_no_other_number() -> None:
    deal = some_deals(3, 1)[0]
    game = MatchingGame(deal)
    before = noted(text_of(game))
    pairs = [*map(deal.names, deal.cells)]
    (first, second, third, *_) = [pair for pair in pairs if pair not in before]
    game.play(0, Say(f"Hello, {' '.join(third)}: 77."))  # its own words tell it nothing
    told = f"{first[0]} has 701 for {first[1]}! For {second[1]}, {second[0]}: 702."
    game.play(1, Say(f"{told} {third[0]} has 5 for {third[1]}, or 6. And 7. {third[0]} 8."))
    assert noted(text_of(game)) == before | {first: 701, second: 702}
    game.play(0, Say("What do you know?"))
    game.play(1, Say(f"{'Hm. ' * (MAX_HEARD_CHARS // 4)}{third[0]} for {third[1]}: 777."))
    assert "777" not in text_of(game)  # the end of a long message is not heard
