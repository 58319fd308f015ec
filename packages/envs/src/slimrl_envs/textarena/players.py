"""Players without a model: a random player for any game, and an expert for GuessTheNumber.

The random player reads only the rules and boards of the game. It never reads another player's text, so the text of
other players cannot influence its moves.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator

from slimrl_envs.textarena.game import BOARD, PROMPT, Game, Seen

Bot = Callable[[Game, list[Seen]], str | None]
"""A function that takes the game and the unread texts for the player to move. It returns a move, or None if it finds no
valid move."""

TOKEN = re.compile(r"\[[^\[\]\n]{1,60}\]")
NUMBER, LETTER = re.compile(r"\d+"), re.compile(r"(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])")
NUM_GUESSES = 150
LEAST_RANGE, GREATEST_RANGE = 9, 30  # moves have numbers from 0 to the largest number in the rules, within these bounds
PLAIN = ("[0]", "[0 0]")  # formats of moves that many games accept


class RandomPlayer:
    """A player that tries random moves on a copy of the game and returns the first valid one. It tries the moves listed
    on the board, then variants of the examples in the rules."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules: list[str] = []
        self._range = LEAST_RANGE

    def __call__(self, game: Game, seen: list[Seen]) -> str | None:
        """Return a valid move for the player whose turn it is; None if no tried move is valid."""
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
        """Yield the `listed` moves, then variants of the examples in the rules. Last, yield the examples with one or
        two numbers, with all combinations of numbers."""
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
        """Return the example `form`, such as `[b2 c3]`, with its numbers and single letters replaced by random ones."""
        if not NUMBER.search(form):
            return form
        text = NUMBER.sub(lambda _: str(self._rng.randint(0, self._range)), form)
        return LETTER.sub(lambda _: self._rng.choice("abcdefgh"), text)


def guess_number(game: Game, seen: list[Seen]) -> str:
    """Return the middle of the range of numbers that the hints of GuessTheNumber have left."""
    low, high = game.inner.min_number, game.inner.max_number
    for number, hint in game.inner.state.game_state["guess_history"]:
        low, high = (number + 1, high) if hint == "higher" else (low, number - 1)
    return f"[{(low + high) // 2}]"
