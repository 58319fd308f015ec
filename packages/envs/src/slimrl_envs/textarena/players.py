"""Players without a model: one of any game who moves at random, and some who know one game each.

An expert plays as well as can be, a scripted opponent well but not perfectly. They read the game's state, but nothing
that is hidden from the player whose turn it is. The player at random reads the game's own rules and boards alone, never
a word of another player, so nobody can put a move into its mouth.
"""

import functools
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from slimrl_envs.textarena.game import BOARD, PROMPT, Game, Seen

Bot = Callable[[Game, list[Seen]], str | None]
"""Takes the game and the news for the player to move, and returns a move; None if it finds no valid one."""
Player = Callable[[Game, random.Random], str]

TOKEN = re.compile(r"\[[^\[\]\n]{1,60}\]")
NUMBER, LETTER = re.compile(r"\d+"), re.compile(r"(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")
NUM_GUESSES = 150
LEAST_RANGE, GREATEST_RANGE = 9, 30  # numbers in moves go from 0 to the greatest in the rules, within these
PLAIN = ("[0]", "[0 0]")  # forms that many games have

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
SLIPS = 0.25  # the share of a scripted player's moves that are random


class RandomPlayer:
    """Takes a listed move, or guesses after the examples in the rules, and tries each on a copy of the game."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules: list[str] = []
        self._range = LEAST_RANGE

    def __call__(self, game: Game, seen: list[Seen]) -> str | None:
        """Return a valid move for the player whose turn it is; None if it finds none."""
        for rules in (one.text for one in seen if one.kind == PROMPT):
            self._rules += sorted({*TOKEN.findall(rules)} - {*self._rules})
            numbers = [int(one) for one in re.findall(r"\b\d{1,2}\b", rules)]
            self._range = max([self._range, *(one for one in numbers if one <= GREATEST_RANGE)])
        boards = [one.text for one in seen if one.kind == BOARD]
        listed = sorted({*TOKEN.findall(boards[-1])}) if boards else []
        tried: set[str] = set()
        for token in self._candidates(listed):
            if token not in tried and game.allows(token):
                return token
            tried.add(token)
        return None

    def _candidates(self, listed: list[str]) -> Iterator[str]:
        """Yield the listed moves, then variants of the examples in the rules, then all numbers in forms that have one
        or two of them."""
        yield from self._rng.sample(listed, len(listed))
        forms = self._rules or [*PLAIN]
        for _ in range(NUM_GUESSES):
            yield self._vary(self._rng.choice(forms))
        numbers = [str(number) for number in range(self._range + 1)]
        for parts in dict.fromkeys(tuple(NUMBER.split(form)) for form in (*self._rules, *PLAIN)):
            if 1 <= (count := len(parts) - 1) <= 2:
                chosen = [(*some, "") for some in itertools.product(numbers, repeat=count)]
                filled = ["".join(map("".join, zip(parts, some, strict=True))) for some in chosen]
                yield from self._rng.sample(filled, len(filled))

    def _vary(self, form: str) -> str:
        """Return the form with other numbers, and other letters where they stand alone, as in `[b2 c3]`."""
        if not NUMBER.search(form):
            return form
        text = NUMBER.sub(lambda _: str(self._rng.randint(0, self._range)), form)
        return LETTER.sub(lambda _: self._rng.choice("abcdefgh"), text)


def bot_of(player: Player, rng: random.Random) -> Bot:
    """Return a player of one game as a player of any."""
    return lambda game, seen: player(game, rng)


def guess_number(game: Game, rng: random.Random) -> str:
    """Halve the numbers that the hints have left."""
    low, high = game.inner.min_number, game.inner.max_number
    for number, hint in game.inner.state.game_state["guess_history"]:
        low, high = (number + 1, high) if hint == "higher" else (low, number - 1)
    return f"[{(low + high) // 2}]"


def guess_word(game: Game, rng: random.Random) -> str:
    """Guess a word that fits all hints, with many letters that are common among these words."""
    inner = game.inner
    hints = inner.state.game_state["guess_history"]
    left = sorted(
        word
        for word in {word.lower() for word in inner.word_list}
        if all(_hint(guess, word) == "".join(hint) for guess, hint in hints) and inner._check_word(word)
    )
    if not left:
        return f"[{rng.choice(inner.word_list)}]"
    return f"[{max(left, key=lambda word: sum(sum(c in other for other in left) for c in set(word)))}]"


def _hint(guess: str, secret: str) -> str:
    """Return the letters G, Y and X that the game answers, by its rule for letters that occur twice."""
    hint = ["G" if letter == right else "X" for letter, right in zip(guess, secret, strict=True)]
    left = [right for right, mark in zip(secret, hint, strict=True) if mark == "X"]
    for place, letter in enumerate(guess):
        if hint[place] == "X" and letter in left:
            hint[place] = "Y"
            left.remove(letter)
    return "".join(hint)


def _cells(game: Game) -> tuple[str, str, str]:
    """Return the nine cells with `.` for a free one, the mark of the player to move, and the other mark."""
    rows = game.inner.state.game_state["board"]
    mark, other = "XO" if game.player == 1 else "OX"
    return "".join(cell or "." for row in rows for cell in row), mark, other


def _moves(cells: str, mark: str) -> dict[int, str]:
    """Return the position after each move."""
    return {cell: cells[:cell] + mark + cells[cell + 1 :] for cell, owner in enumerate(cells) if owner == "."}


def _has_line(cells: str, mark: str) -> bool:
    return any(all(cells[cell] == mark for cell in line) for line in LINES)


@functools.cache
def _value(cells: str, mark: str, other: str) -> float:
    """Return the worth of the position to `mark`, who is to move: 1 won, 0 lost. Against perfect play all draws are
    alike, so the mean over the other's moves counts a little."""
    if _has_line(cells, other):
        return 0.0
    values = [1 - _value(after, other, mark) for after in _moves(cells, mark).values()]
    return 0.99 * max(values) + 0.01 * sum(values) / len(values) if values else 0.5


def play_tictactoe(game: Game, rng: random.Random) -> str:
    """Play without ever losing, and set traps."""
    cells, mark, other = _cells(game)
    values = {cell: 1 - _value(after, other, mark) for cell, after in _moves(cells, mark).items()}
    best = max(values.values())
    return f"[{rng.choice([cell for cell, value in values.items() if value > best - 1e-9])}]"


def answer_tictactoe(game: Game, rng: random.Random) -> str:
    """Complete a line, block the other's, and else move at random."""
    cells, *marks = _cells(game)
    for mark in marks:
        for cell, after in _moves(cells, mark).items():
            if _has_line(after, mark):
                return f"[{cell}]"
    return f"[{rng.choice([*_moves(cells, '.')])}]"


def play_nim(game: Game, rng: random.Random) -> str:
    """Leave piles with an exclusive or of 0, where that can be done."""
    piles: Sequence[int] = game.inner.state.game_state["piles"]
    total = functools.reduce(lambda a, b: a ^ b, piles)
    good = [(pile, size - (size ^ total)) for pile, size in enumerate(piles) if size ^ total < size]
    # In a lost position one object less keeps the game long.
    pile, quantity = rng.choice(good or [(pile, 1) for pile, size in enumerate(piles) if size])
    return f"[{pile} {quantity}]"


def answer_nim(game: Game, rng: random.Random) -> str:
    """Play well, but for a share of random moves."""
    piles = game.inner.state.game_state["piles"]
    if rng.random() >= SLIPS:
        return play_nim(game, rng)
    pile = rng.choice([pile for pile, size in enumerate(piles) if size])
    return f"[{pile} {rng.randint(1, piles[pile])}]"


def answer_connect_four(game: Game, rng: random.Random) -> str:
    """Complete four discs, block the other's, and else prefer the middle."""
    inner: Any = game.inner
    board = inner.state.game_state["board"]
    free = [column for column in range(inner.num_cols) if board[0][column] == "."]
    for disc in "XO" if game.player == 0 else "OX":
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
    """Play an equilibrium of the game of one round: the king bets, and one time in three the jack bluffs and the queen
    calls."""
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
