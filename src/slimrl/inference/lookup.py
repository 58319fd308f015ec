"""Guesses what a sequence says next by looking up its last two tokens earlier in it (prompt lookup decoding).

Whoever quotes, sorts or reverses what stands in the prompt repeats pieces of it. The engine feeds the guessed tokens
together with the last one and samples behind each of them: as long as the draw is the guessed token, the next draw is
one that counts too. Every token is drawn from the model's own distribution with the number that was due anyway, so
guessing changes neither the distribution nor, but for the rounding of a forward over other rows, the tokens of a seed;
only how many come out of one forward.
"""

from collections.abc import Sequence


class Lookup:
    """The guesses for one sequence that only grows, at most `limit` tokens at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = limit
        self._follower: dict[tuple[int, int], int] = {}  # where stood what followed two tokens the last time
        self._known = 2

    def guess(self, tokens: Sequence[int], room: int) -> list[int]:
        """At most `room` tokens that may come next; empty if the last two are new."""
        for place in range(self._known, len(tokens)):
            self._follower[tokens[place - 2], tokens[place - 1]] = place
        self._known = max(self._known, len(tokens))
        found = self._follower.get((tokens[-2], tokens[-1])) if len(tokens) > 1 else None
        return [] if found is None else list(tokens[found : found + min(self._length, room)])

    def learn(self, guessed: int, right: int) -> None:
        """Guess twice as far next time after a guess that was right to its end, and half as far after one that was
        wrong from its beginning."""
        if right == guessed:
            self._length = min(self._limit, 2 * self._length)
        elif right == 0:
            self._length = max(1, self._length // 2)
