"""A player of any game who moves at random: it takes a listed move, or guesses after the examples in the rules.

Whether a move is valid is tried on a copy of the game. Only the game's own rules and boards are read, never a word of
another player, so nobody can put a move into its mouth.
"""

import itertools
import random
import re
from collections.abc import Iterator

from slimrl_envs.textarena.game import BOARD, PROMPT, Game, Seen

TOKEN = re.compile(r"\[[^\[\]\n]{1,60}\]")
NUMBER, LETTER = re.compile(r"\d+"), re.compile(r"(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")
NUM_GUESSES = 150
LEAST_RANGE, GREATEST_RANGE = 9, 30  # numbers in moves go from 0 to the greatest in the rules, within these
PLAIN = ("[0]", "[0 0]")  # forms that many games have


class RandomPlayer:
    """Moves at random, from a generator of its own."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules: list[str] = []
        self._range = LEAST_RANGE

    def move(self, game: Game, seen: list[Seen]) -> str | None:
        """A valid move for the player whose turn it is; None if it finds none."""
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
        """The listed moves, then variants of the examples in the rules, then all numbers in forms that have one or
        two of them."""
        yield from self._rng.sample(listed, len(listed))
        forms = self._rules or [*PLAIN]
        for _ in range(NUM_GUESSES):
            yield self._vary(self._rng.choice(forms))
        for form in dict.fromkeys(NUMBER.sub("0", form) for form in (*self._rules, *PLAIN)):
            if 1 <= len(NUMBER.findall(form)) <= 2:
                filled = [*_fillings(form, self._range + 1)]
                yield from self._rng.sample(filled, len(filled))

    def _vary(self, form: str) -> str:
        """The form with other numbers, and other letters where they stand alone, as in `[b2 c3]`."""
        if not NUMBER.search(form):
            return form
        text = NUMBER.sub(lambda _: str(self._rng.randint(0, self._range)), form)
        return LETTER.sub(lambda _: self._rng.choice("abcdefgh"), text)


def _fillings(form: str, count: int) -> Iterator[str]:
    """The form with all combinations of the numbers below `count`."""
    for numbers in itertools.product(range(count), repeat=len(NUMBER.findall(form))):
        left = iter(numbers)
        yield NUMBER.sub(lambda _, left=left: str(next(left)), form)  # type: ignore[misc]
