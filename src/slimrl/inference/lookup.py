"""Prompt lookup decoding: guesses the next tokens of a sequence from an earlier occurrence of its last two tokens.

A policy that quotes, sorts or reverses a part of the prompt repeats pieces of the prompt. The engine feeds the guessed
tokens together with the last token, and samples after each of them. While a sampled token equals its guess, the next
sample is valid, too. Every token is drawn from the model's own distribution with the same random number as without
guessing. So guessing does not change the distribution. The same seed also gives the same tokens, up to rounding.
Guessing only changes the number of tokens per forward pass.
"""

from collections.abc import Sequence


class Lookup:
    """Guesses the next tokens of one growing sequence, at most `limit` tokens at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._length = limit
        self._follower: dict[tuple[int, int], int] = {}  # a pair of tokens -> the index after its latest occurrence
        self._known = 2  # the next index to enter in `_follower`

    def guess(self, tokens: Sequence[int], room: int) -> list[int]:
        """Return up to `room` likely next tokens; empty if the last two tokens have not occurred before as a pair."""
        for place in range(self._known, len(tokens)):
            # The last two tokens are entered later: otherwise the search below would find them and no earlier
            # occurrence.
            self._follower[tokens[place - 2], tokens[place - 1]] = place
        self._known = max(self._known, len(tokens))
        found = self._follower.get((tokens[-2], tokens[-1])) if len(tokens) > 1 else None
        return [] if found is None else list(tokens[found : found + min(self._length, room)])

    def learn(self, guessed: int, right: int) -> None:
        """Double the length of future guesses if all `guessed` tokens were right. Halve the length if none of them was
        right.

        Each wrong token costs a row of the forward pass.
        """
        if right == guessed:
            self._length = min(self._limit, 2 * self._length)
        elif right == 0:
            self._length = max(1, self._length // 2)
