"""Wordle: marks, games, and what the marks tell. Knows nothing of chats and rewards, nor which words there are.

A guess is marked letter by letter: `G` right and in its place, `Y` in the word but elsewhere, `X` not in the word, or
not that often. Each letter of the answer is spent once: first on what is in its place, then from left to right.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

NUM_LETTERS = 5
NUM_TRIES = 6
GREEN, YELLOW, GREY = "G", "Y", "X"
UNKNOWN = "_"


def marks_of(guess: str, answer: str) -> str:
    """The marks of a guess.

    >>> marks_of("geese", "those")
    'XXXGG'
    >>> marks_of("eerie", "where")
    'YXYXG'
    """
    left = [there for letter, there in zip(guess, answer, strict=True) if letter != there]
    marks = ""
    for letter, there in zip(guess, answer, strict=True):
        if letter == there:
            marks += GREEN
        elif letter in left:
            left.remove(letter)
            marks += YELLOW
        else:
            marks += GREY
    return marks


@dataclass(frozen=True, slots=True)
class Try:
    """One of a player's tries: a word with its marks, or the reason why there are none."""

    word: str
    marks: str = ""
    mistake: str = ""
    is_repeated: bool = False

    def __post_init__(self) -> None:
        assert bool(self.marks) != bool(self.mistake), self

    @property
    def closeness(self) -> float:
        """0 to 1: a letter in its place counts 1/5, one that is elsewhere 1/10. Below 1 it is at most 4/5."""
        return (self.marks.count(GREEN) + self.marks.count(YELLOW) / 2) / NUM_LETTERS


@dataclass(slots=True)
class Game:
    """One answer and the tries so far. Every try counts, a mistake too, so that a game ends after `NUM_TRIES`. An
    `opening` is a first try that is made for the player."""

    answer: str
    allowed: Set[str]
    opening: str = ""
    tries: list[Try] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.opening:
            self.play(self.opening)

    def play(self, text: str) -> Try:
        """Try what stands in the text: a word, in letters of any case, which may be spelt out with spaces."""
        assert not self.is_over, "the game is over"
        word = "".join(text.split()).lower()
        mistake, is_repeated = self._mistake(word), word in self.words
        marks = "" if mistake else marks_of(word, self.answer)
        self.tries.append(Try(word, marks, mistake, is_repeated))
        return self.tries[-1]

    def forfeit(self, mistake: str) -> Try:
        """Spend a try on no word at all."""
        assert not self.is_over, "the game is over"
        self.tries.append(Try("", "", mistake))
        return self.tries[-1]

    @property
    def own(self) -> list[Try]:
        """Those of the player."""
        return self.tries[1:] if self.opening else self.tries

    @property
    def marked(self) -> list[Try]:
        return [one for one in self.tries if one.marks]

    @property
    def words(self) -> list[str]:
        """Those that have been marked."""
        return [one.word for one in self.marked]

    @property
    def is_won(self) -> bool:
        return self.answer in self.words

    @property
    def is_over(self) -> bool:
        return self.is_won or len(self.tries) == NUM_TRIES

    def _mistake(self, word: str) -> str:
        shown = f"`{word[:20]}{'...' if len(word) > 20 else ''}`"
        if not (word.isascii() and word.isalpha()):
            return f"{shown} has other signs than the letters a to z." if word else "the guess is empty."
        if len(word) != NUM_LETTERS:
            return f"{shown} has {len(word)} letters, not {NUM_LETTERS}."
        if word not in self.allowed:
            return f"{shown} is not in the list of words."
        return f"{shown} was guessed before." if word in self.words else ""


def fits(word: str, tries: Iterable[Try]) -> bool:
    """Whether a word could be the answer, after these marks."""
    return all(marks_of(one.word, word) == one.marks for one in tries if one.marks)


@dataclass(frozen=True, slots=True)
class Known:
    """What marks tell about the answer, but for where its letters are not: `placed` has `_` for an unknown letter;
    `elsewhere` are letters that it has besides, as often as is known; `absent` those that it has not."""

    placed: str
    elsewhere: str
    absent: str


def known_from(tries: Sequence[Try]) -> Known:
    """
    >>> known_from([Try("crane", "GYXXX")])
    Known(placed='c____', elsewhere='r', absent='ane')
    """
    placed = [UNKNOWN] * NUM_LETTERS
    least: Counter[str] = Counter()  # of each letter the answer has so many
    seen = dict.fromkeys(letter for one in tries if one.marks for letter in one.word)
    for one in tries:
        pairs = list(zip(one.word, one.marks, strict=True)) if one.marks else []
        least |= Counter(letter for letter, mark in pairs if mark != GREY)
        for place, (letter, mark) in enumerate(pairs):
            if mark == GREEN:
                placed[place] = letter
    elsewhere = least - Counter(placed)
    absent = "".join(letter for letter in seen if not least[letter])
    return Known("".join(placed), "".join(elsewhere.elements()), absent)
