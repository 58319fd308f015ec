"""The rules of Wordle: the feedback on a guess, the game, and the hints that feedback gives about the answer. The
module does not depend on chats, rewards or the list of words.

Feedback is one mark for each letter of the guess: `G` if the letter is in its place, `Y` if it is elsewhere in the
answer, and `X` otherwise. Each letter of the answer is used for at most one mark: first for letters in their place,
then from left to right. So a letter that the guess repeats too often also gets an `X`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

NUM_LETTERS = 5
NUM_TRIES = 6
GREEN, YELLOW, GREY = "G", "Y", "X"
UNKNOWN = "_"


def feedback_of(guess: str, answer: str) -> str:
    """Return the feedback on a guess: one mark for each letter. Each letter of the answer is used for at most one mark.

    >>> feedback_of("geese", "those")
    'XXXGG'
    >>> feedback_of("eerie", "where")
    'YXYXG'
    """
    # Letters in their place are used first, so that a yellow mark further left cannot use them.
    left = [there for letter, there in zip(guess, answer, strict=True) if letter != there]
    feedback = ""
    for letter, there in zip(guess, answer, strict=True):
        if letter == there:
            feedback += GREEN
        elif letter in left:
            left.remove(letter)
            feedback += YELLOW
        else:
            feedback += GREY
    return feedback


@dataclass(frozen=True, slots=True)
class Try:
    """One try of a player: a word with its feedback, or a mistake without feedback."""

    word: str
    feedback: str = ""
    mistake: str = ""
    is_repeated: bool = False

    def __post_init__(self) -> None:
        assert bool(self.feedback) != bool(self.mistake), self

    @property
    def partial_credit(self) -> float:
        """A score from 0 to 1. A letter in its place counts 1/5, and a letter that is elsewhere in the answer 1/10. The
        score of a wrong guess is at most 4/5."""
        return (self.feedback.count(GREEN) + self.feedback.count(YELLOW) / 2) / NUM_LETTERS


@dataclass(slots=True)
class Game:
    """A game: one answer and the tries so far. A mistake counts as a try, so every game stops after `NUM_TRIES` tries.
    `opening` is a first try that the environment makes for the player, or an empty text."""

    answer: str
    allowed: Set[str]
    opening: str = ""
    tries: list[Try] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.opening:
            self.play(self.opening)

    def play(self, text: str, mistake: str = "") -> Try:
        """Play the word in a text, in upper or lower case, with or without spaces between its letters. Returns the try.
        With a `mistake` the text is not played, but still counts as a try."""
        assert not self.is_over, "the game is over"
        word = "".join(text.split()).lower()
        mistake = mistake or self._mistake(word)
        feedback = "" if mistake else feedback_of(word, self.answer)
        self.tries.append(Try(word, feedback, mistake, is_repeated=word in self.words))
        return self.tries[-1]

    @property
    def own_tries(self) -> list[Try]:
        """The tries of the player, without the opening."""
        return self.tries[1:] if self.opening else self.tries

    @property
    def tries_with_feedback(self) -> list[Try]:
        """The tries that have feedback."""
        return [one for one in self.tries if one.feedback]

    @property
    def words(self) -> list[str]:
        """The words of the tries that have feedback."""
        return [one.word for one in self.tries_with_feedback]

    @property
    def is_won(self) -> bool:
        """True if the answer was guessed."""
        return self.answer in self.words

    @property
    def is_over(self) -> bool:
        """True if the game is won, or no try is left."""
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
    """Return True if a word could be the answer, given the feedback on these tries."""
    return all(feedback_of(one.word, word) == one.feedback for one in tries if one.feedback)


def find_hints(tries: Sequence[Try]) -> tuple[str, str, str]:
    """Return three hints from the feedback on all tries. The hints do not include the places where a letter cannot be.

    The first hint has the letters in their places, with `_` for an unknown letter. The second hint has the other known
    letters of the answer, repeated as often as known. The third hint has the letters that are not in the answer.

    >>> find_hints([Try("crane", "GYXXX")])
    ('c____', 'r', 'ane')
    """
    placed = [UNKNOWN] * NUM_LETTERS
    least: Counter[str] = Counter()  # the answer has each letter at least this many times
    seen = dict.fromkeys(letter for one in tries if one.feedback for letter in one.word)
    for one in tries:
        pairs = list(zip(one.word, one.feedback, strict=True)) if one.feedback else []
        # `|=` keeps the larger count. Grey marks do not count: a letter occurs only as often as it has other marks.
        least |= Counter(letter for letter, mark in pairs if mark != GREY)
        for place, (letter, mark) in enumerate(pairs):
            if mark == GREEN:
                placed[place] = letter
    elsewhere = least - Counter(placed)
    absent = "".join(letter for letter in seen if not least[letter])
    return "".join(placed), "".join(elsewhere.elements()), absent
