"""Deals for the tests of players, made once."""

import random
from functools import cache
from statistics import fmean

from slimrl.games.matching.deal import Deal
from slimrl.games.matching.game import MatchingGame
from slimrl.games.matching.generator import deal
from slimrl.games.matching.shy import ShyPartner
from slimrl.games.matching.talkers import Player
from tests.games.matching.players import play_out


@cache
def some_deals(size: int, num: int) -> tuple[Deal, ...]:
    """Always the same ones."""
    rng = random.Random(size)
    return tuple(deal(rng, size, str(k)) for k in range(num))


def against_shy(deal: Deal, player: Player, seat: int, max_turns: int | None = None) -> MatchingGame:
    """A whole game with the shy partner at the other seat."""
    shy = ShyPartner(deal, 1 - seat, random.Random(deal.game_id))
    game = MatchingGame(deal, max_turns)
    play_out(game, (player, shy) if seat == 0 else (shy, player))
    return game


def mean_reward(games: list[MatchingGame]) -> float:
    return fmean(game.reward for game in games)
