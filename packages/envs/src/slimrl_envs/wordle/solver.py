"""Scripted players of Wordle. They know the list of all answers, but not the answer of the game.

The solver guesses, among the words that can still be the answer, the word with the most informative feedback. The fixed
words do not depend on feedback, so they show how much a policy can earn without feedback.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from slimrl_envs.wordle.rules import Try, feedback_of, fits

NUM_WEIGHED = 20  # minimum number of first guesses to compare; each needs a pass over all answers
NUM_FIXED = 100  # words from which the fixed words are chosen


class Solver:
    """A player that guesses the word whose feedback has the highest entropy. Words of equal entropy are compared by how
    common their letters are, and then by their order in `answers`."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = tuple(answers)

    def guess(self, tries: Sequence[Try]) -> str:
        """Return the next guess, which depends only on the answers and the `tries`."""
        if not any(one.feedback for one in tries):
            return self._opening
        return most_telling([word for word in self._answers if fits(word, tries)])

    @cached_property
    def _opening(self) -> str:
        """The first guess. Its computation takes a second."""
        return most_telling(self._answers)


def most_telling(candidates: Sequence[str]) -> str:
    """Return the candidate whose feedback has the highest entropy over all candidates."""
    return openings(candidates, 1)[0] if len(candidates) > 2 else candidates[0]


def openings(answers: Sequence[str], num: int) -> list[str]:
    """Return the `num` most informative first guesses, the best one first. The candidates are the words with the most
    common letters."""
    weighed = _of_common_letters(answers, max(num, NUM_WEIGHED))
    return sorted(weighed, key=lambda word: -_entropy(word, answers))[:num]


def choose_fixed_words(answers: Sequence[str], num: int) -> list[str]:
    """Return `num` different words, chosen greedily. With each word, the highest partial credit among the chosen words
    increases most, on average over all answers."""
    credit = {
        word: [Try(word, feedback_of(word, answer)).partial_credit for answer in answers]
        for word in _of_common_letters(answers, NUM_FIXED)
    }
    words, best = list[str](), [0.0] * len(answers)
    while len(words) < num:
        left = (word for word in credit if word not in words)
        words.append(max(left, key=lambda word: sum(map(max, best, credit[word]))))
        best = [*map(max, best, credit[words[-1]])]
    return words


def _of_common_letters(words: Sequence[str], num: int) -> list[str]:
    num_with = Counter(letter for word in words for letter in set(word))
    return sorted(words, key=lambda word: -sum(num_with[letter] for letter in set(word)))[:num]


def _entropy(word: str, candidates: Sequence[str]) -> float:
    """Return the entropy of the feedback on a word over all candidates, in nats, minus a constant that is the same for
    all words."""
    counts = Counter(feedback_of(word, answer) for answer in candidates).values()
    return -sum(count * math.log(count) for count in counts) / len(candidates)
