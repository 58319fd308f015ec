"""The rewards of games for one player whose own are wrong or go beyond 1, and games that pay a blind policy, in
textarena 0.7."""

from collections.abc import Callable, Collection

from slimrl_envs.textarena.game import Game

SET_TURNS = 20  # of a game of Set, each of which may find a set
# The best blind play of each kind or variant that pays it more than 0.3, and its mean reward with `opponent = "random"`
# (`benchmarks/checks/blind_answers.py`).
EASY = {
    "2048-v0-10x10": ("every move is a valid one at random", 1.0),
    "2048-v0-ultra-easy": ("every move is a valid one at random", 1.0),
    "ConnectFour": ("every reply to the player at random is `[0]`", 0.83),
    "IteratedPrisonersDilemma": ("every reply to the player at random is `[defect]`", 1.0),
    "IteratedTwoThirdsAverage": ("every reply to the player at random is `[0]`", 1.0),
    "Poker": ("every reply to the player at random is `[call]`", 1.0),
    "SecretMafia": ("every reply is `[2]`", 0.33),
    "Secretary": ("every reply is `[accept]`", 0.33),
    "SimpleNegotiation": ("every reply to the player at random is `[0]`", 0.5),
    "Snake": ("every reply is `[up]`", 0.33),
    "Surround": ("every reply to the player at random is `[up]`", 0.67),
    "Taboo": ("every reply to the player at random is `[0]`", 0.5),
    "ThreeCardMonte": ("every reply is `[0]`", 0.5),
    "ThreePlayerIPD": ("every reply to the player at random is `[0]`", 0.5),
}


def _of_bandit(game: Game, raw: float) -> float:
    """1 for the best button, 0 for the worst. The game pays the regret: it compares the button with the whole table of
    chances, so that no button is the right one."""
    chances: Collection[float] = game.inner.state.game_state["ground_truth"].values()
    return 1.0 - raw / (max(chances) - min(chances))


def _of_set(game: Game, raw: float) -> float:
    """The share of turns that found a set. The game pays their number, so that the first one would earn everything."""
    return raw / SET_TURNS


def _of_cryptarithm(game: Game, raw: float) -> float:
    """1 for an equation that holds, otherwise 0. The game pays the share of letters with a digit at the last move."""
    return float(raw >= 1.0)


CORRECTED: dict[str, Callable[[Game, float], float]] = {
    "Bandit": _of_bandit,
    "Cryptarithm": _of_cryptarithm,
    "Set": _of_set,
}


def raw_reward(game: Game, player: int) -> float:
    """The reward that a finished game pays a player, corrected where it is wrong; nan if the game pays none."""
    raw = game.raw_rewards()[player]
    correct = CORRECTED.get(game.kind)
    return correct(game, raw) if correct else raw
