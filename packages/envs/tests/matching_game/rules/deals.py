"""Deals for the tests of players, made once."""

import random
from dataclasses import replace
from functools import cache
from statistics import fmean

from packages.envs.tests.matching_game.rules.players import play_out
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game import MatchingGame
from slimrl_envs.matching_game.rules.generator import deals
from slimrl_envs.matching_game.rules.protocol import Player
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner


@cache
def some_deals(size: int, num: int) -> tuple[Deal, ...]:
    """Always the same ones."""
    rng = random.Random(size)
    return tuple(new_deal(rng, size, str(k)) for k in range(num))


def new_deal(rng: random.Random, size: int, game_id: str) -> Deal:
    return replace(next(deals(rng, size)), game_id=game_id)


def against_shy(deal: Deal, player: Player, seat: int, max_turns: int | None = None) -> MatchingGame:
    """A whole game with the shy partner at the other seat."""
    shy = ShyPartner(deal, 1 - seat, random.Random(deal.game_id))
    game = MatchingGame(deal, max_turns)
    play_out(game, (player, shy) if seat == 0 else (shy, player))
    return game


def mean_reward(games: list[MatchingGame]) -> float:
    return fmean(game.reward for game in games)
