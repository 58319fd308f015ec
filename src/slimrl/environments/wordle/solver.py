"""Scripted players of Wordle. They know the list of all answers, as any player may, and nothing of the one sought.

The solver always guesses a word that could be the answer, the one whose marks would tell most. Who plays fixed words
looks at no marks: what those earn, a policy can earn without reading.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

from slimrl.environments.wordle.rules import Try, fits, marks_of
from slimrl.errors import UserError

# Only so many of the words that could be the answer are weighed, those of the commonest letters: a move is to be quick.
NUM_WEIGHED = 20
NUM_FIXED = 100  # and so many from which fixed words are chosen


class Solver:
    """`answers` is the list; the order decides between words that are as good."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = tuple(answers)

    def guess(self, tries: Sequence[Try]) -> str:
        """The next guess: a pure function of the answers and the marked tries. Raises UserError when no answer fits."""
        marked = [one for one in tries if one.marks]
        if not marked:
            return self._opening[0]
        opener, by_marks = self._opening
        known = by_marks.get(marked[0].marks, []) if marked[0].word == opener else self._answers
        candidates = [word for word in known if fits(word, marked)]
        if not candidates:
            raise UserError("wordle: no answer in the list fits these marks.")
        return most_telling(candidates)

    @cached_property
    def _opening(self) -> tuple[str, dict[str, list[str]]]:
        """The first guess, and the answers by their marks for it."""
        opener, by_marks = most_telling(self._answers), defaultdict[str, list[str]](list)
        for answer in self._answers:
            by_marks[marks_of(opener, answer)].append(answer)
        return opener, dict(by_marks)


def most_telling(candidates: Sequence[str]) -> str:
    """Of words that could be the answer, the one whose marks have the highest entropy, over all that could."""
    return openings(candidates, 1)[0] if len(candidates) > 2 else candidates[0]


def openings(answers: Sequence[str], num: int) -> list[str]:
    """So many of the answers, as first guesses: of the words of the commonest letters those that tell most, the best
    first."""
    weighed = _of_common_letters(answers, max(num, NUM_WEIGHED))
    return sorted(weighed, key=lambda word: -_entropy(word, answers))[:num]


def fixed_words(answers: Sequence[str], num: int) -> list[str]:
    """Different words, each of which, beside those before it, raises the closeness of the best guess most on average
    over all answers."""
    closeness = {
        word: [Try(word, marks_of(word, answer)).closeness for answer in answers]
        for word in _of_common_letters(answers, NUM_FIXED)
    }
    words, best = list[str](), [0.0] * len(answers)
    while len(words) < num:
        left = (word for word in closeness if word not in words)
        words.append(max(left, key=lambda word: sum(map(max, best, closeness[word]))))
        best = [*map(max, best, closeness[words[-1]])]
    return words


def _of_common_letters(words: Sequence[str], num: int) -> list[str]:
    """Those whose different letters are in most of the words, the first of them first."""
    num_with = Counter(letter for word in words for letter in set(word))
    return sorted(words, key=lambda word: -sum(num_with[letter] for letter in set(word)))[:num]


def _entropy(word: str, candidates: Sequence[str]) -> float:
    counts = Counter(marks_of(word, answer) for answer in candidates).values()
    return -sum(count * math.log(count) for count in counts) / len(candidates)
