"""Deals for the tests of players, made once, and games between two players."""

import random
from contextlib import suppress
from dataclasses import replace
from functools import cache
from statistics import fmean

from slimrl_envs.matching_game.rules.deal import Deal, default_names
from slimrl_envs.matching_game.rules.game import Accept, Act, IllegalAct, MatchingGame, Player, Propose, Say
from slimrl_envs.matching_game.rules.generator import deals
from slimrl_envs.matching_game.rules.protocol import format_act, play_text
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner


@cache
def some_deals(size: int, num: int) -> tuple[Deal, ...]:
    """Return always the same deals."""
    rng = random.Random(size)
    return tuple(new_deal(rng, size, str(k)) for k in range(num))


def new_deal(rng: random.Random, size: int, game_id: str) -> Deal:
    return replace(next(deals(rng, size)), game_id=game_id)


def any_deal(rng: random.Random, n: int) -> Deal:
    """Return a deal of the distribution without the rule."""
    known = tuple(tuple(tuple(rng.random() < 0.4 for _ in range(n)) for _ in range(n)) for _ in range(2))
    table = tuple(
        tuple(rng.randrange(100) if known[0][r][p] or known[1][r][p] else 50 for p in range(n)) for r in range(n)
    )
    return Deal(table, known, (rng.uniform(1, 10), rng.uniform(1, 10)), *default_names(n), "any")


def play_out(game: MatchingGame, players: tuple[Player, Player]) -> float:
    """Play a game to its end and return the reward. After an error the same player is asked again."""
    while not game.is_over:
        act: Act | str = players[game.turn].act(game.heard())
        with suppress(IllegalAct):  # the game counts it, and ends after too many
            play_text(game, game.turn, act if isinstance(act, str) else format_act(act, game.deal))
    return game.reward


class Agreeable:
    """A player that accepts every proposal and makes none: it lets others be measured."""

    def act(self, heard: Say | Propose | None) -> Act:
        return Accept() if isinstance(heard, Propose) else Say("I have no idea.")


def against_shy(deal: Deal, player: Player, seat: int, max_turns: int | None = None) -> MatchingGame:
    """Return a whole game with the shy partner at the other seat."""
    shy = ShyPartner(deal, 1 - seat, random.Random(deal.game_id))
    game = MatchingGame(deal, max_turns)
    play_out(game, (player, shy) if seat == 0 else (shy, player))
    return game


def mean_reward(games: list[MatchingGame]) -> float:
    return fmean(game.reward for game in games)
