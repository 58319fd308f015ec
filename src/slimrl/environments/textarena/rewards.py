"""The rewards of games for one player whose own are wrong or go beyond 1, in textarena 0.7."""

from collections.abc import Callable, Collection

from slimrl.environments.textarena.game import Game

SET_TURNS = 20  # of a game of Set, each of which may find a set


def _of_bandit(game: Game, raw: float) -> float:
    """1 for the best button, 0 for the worst. The game pays the regret: it compares the button with the whole table of
    chances, so that no button is the right one."""
    chances: Collection[float] = game.inner.state.game_state["ground_truth"].values()
    return 1.0 - raw / (max(chances) - min(chances))


def _of_set(game: Game, raw: float) -> float:
    """The share of turns that found a set. The game pays their number, so that the first one would earn everything."""
    return raw / SET_TURNS


CORRECTED: dict[str, Callable[[Game, float], float]] = {"Bandit": _of_bandit, "Set": _of_set}


def raw_reward(game: Game, player: int) -> float:
    """The reward that a finished game pays a player, corrected where it is wrong; nan if the game pays none."""
    raw = game.raw_rewards()[player]
    correct = CORRECTED.get(game.kind)
    return correct(game, raw) if correct else raw
