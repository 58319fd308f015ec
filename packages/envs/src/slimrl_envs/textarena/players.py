"""Players who know one game each. An expert plays as well as can be, a scripted opponent well but not perfectly.

They read the game's state, but nothing that is hidden from the player whose turn it is.
"""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

from slimrl_envs.textarena.game import Game

Player = Callable[[Game, random.Random], str]

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SLIPS = 0.25  # the share of a scripted player's moves that are random


def guess_number(game: Game, rng: random.Random) -> str:
    """Halves the numbers that the hints have left."""
    low, high = game.inner.min_number, game.inner.max_number
    for number, hint in game.inner.state.game_state["guess_history"]:
        low, high = (number + 1, high) if hint == "higher" else (low, number - 1)
    return f"[{(low + high) // 2}]"


def guess_word(game: Game, rng: random.Random) -> str:
    """A secret that could have given all hints, with many letters that are common among these."""
    inner = game.inner
    state = inner.state.game_state
    left = sorted(
        word
        for word in {word.lower() for word in inner.word_list}
        if all(_hint(guess, word) == "".join(hint) for guess, hint in state["guess_history"])
        and inner._check_word(word)
    )
    if not left:
        return f"[{rng.choice(inner.word_list)}]"
    return f"[{max(left, key=lambda word: sum(sum(c in other for other in left) for c in set(word)))}]"


def _hint(guess: str, secret: str) -> str:
    """The letters G, Y and X that the game answers, by its rule for letters that occur twice."""
    hint, left = ["X"] * len(guess), list(secret)
    for place, (letter, right) in enumerate(zip(guess, secret, strict=True)):
        if letter == right:
            hint[place] = "G"
            left.remove(letter)
    for place, letter in enumerate(guess):
        if hint[place] == "X" and letter in left:
            hint[place] = "Y"
            left.remove(letter)
    return "".join(hint)


def _cells(game: Game) -> tuple[str, str, str]:
    """The nine cells with `.` for a free one, the mark of the player to move, and the other's."""
    rows = game.inner.state.game_state["board"]
    mark = "X" if game.player == 1 else "O"
    return "".join(cell or "." for row in rows for cell in row), mark, "O" if mark == "X" else "X"


def _has_line(cells: str, mark: str) -> bool:
    return any(all(cells[cell] == mark for cell in line) for line in LINES)


@functools.cache
def _value(cells: str, mark: str, other: str) -> float:
    """The worth of the position to `mark`, who is to move: 1 won, 0 lost. Against perfect play all draws are alike, so
    the mean over the other's moves counts a little."""
    if _has_line(cells, other):
        return 0.0
    free = [cell for cell, owner in enumerate(cells) if owner == "."]
    if not free:
        return 0.5
    values = [1 - _value(cells[:cell] + mark + cells[cell + 1 :], other, mark) for cell in free]
    return 0.99 * max(values) + 0.01 * sum(values) / len(values)


def play_tictactoe(game: Game, rng: random.Random) -> str:
    """Never loses, and sets traps."""
    cells, mark, other = _cells(game)
    free = [cell for cell, owner in enumerate(cells) if owner == "."]
    values = {cell: 1 - _value(cells[:cell] + mark + cells[cell + 1 :], other, mark) for cell in free}
    best = max(values.values())
    return f"[{rng.choice([cell for cell, value in values.items() if value > best - 1e-9])}]"


def answer_tictactoe(game: Game, rng: random.Random) -> str:
    """Completes its line, blocks the other's, and else moves at random."""
    cells, mark, other = _cells(game)
    free = [cell for cell, owner in enumerate(cells) if owner == "."]
    for who in (mark, other):
        for cell in free:
            if _has_line(cells[:cell] + who + cells[cell + 1 :], who):
                return f"[{cell}]"
    return f"[{rng.choice(free)}]"


def play_nim(game: Game, rng: random.Random) -> str:
    """Leaves piles whose exclusive or is 0, where that can be done."""
    piles: Sequence[int] = game.inner.state.game_state["piles"]
    total = functools.reduce(lambda a, b: a ^ b, piles)
    good = [(pile, size - (size ^ total)) for pile, size in enumerate(piles) if size ^ total < size]
    # In a lost position one object less keeps the game long.
    pile, quantity = rng.choice(good or [(pile, 1) for pile, size in enumerate(piles) if size])
    return f"[{pile} {quantity}]"


def answer_nim(game: Game, rng: random.Random) -> str:
    """Plays well, but for a share of random moves."""
    piles = game.inner.state.game_state["piles"]
    if rng.random() >= SLIPS:
        return play_nim(game, rng)
    pile = rng.choice([pile for pile, size in enumerate(piles) if size])
    return f"[{pile} {rng.randint(1, piles[pile])}]"


def answer_connect_four(game: Game, rng: random.Random) -> str:
    """Completes its four, blocks the other's, and else prefers the middle."""
    inner: Any = game.inner
    board = inner.state.game_state["board"]
    free = [column for column in range(inner.num_cols) if board[0][column] == "."]
    own = "X" if game.player == 0 else "O"
    for disc in (own, "O" if own == "X" else "X"):
        for column in free:
            row = inner._get_available_row(column)
            board[row][column] = disc
            wins = inner._check_win(row, column)
            board[row][column] = "."
            if wins:
                return f"[col {column}]"
    middle = (inner.num_cols - 1) / 2
    return f"[col {rng.choices(free, [1 / (1 + abs(column - middle)) for column in free])[0]}]"


def play_kuhn_poker(game: Game, rng: random.Random) -> str:
    """An equilibrium of the game of one round: the king bets, the jack bluffs one time in three, and the queen calls
    one time in three."""
    state = game.inner.state.game_state
    card = state["player_cards"][game.player]  # 0, 1 and 2 are jack, queen and king
    if "check" in state["current_legal_action_tree"]:
        return "[bet]" if card == 2 or (card == 0 and rng.random() < 1 / 3) else "[check]"
    return "[call]" if card == 2 or (card == 1 and rng.random() < 1 / 3) else "[fold]"


EXPERTS: dict[str, Player] = {
    "GuessTheNumber": guess_number,
    "Nim": play_nim,
    "TicTacToe": play_tictactoe,
    "Wordle": guess_word,
}
OPPONENTS: dict[str, Player] = {
    "ConnectFour": answer_connect_four,
    "KuhnPoker": play_kuhn_poker,
    "Nim": answer_nim,
    "TicTacToe": answer_tictactoe,
}
