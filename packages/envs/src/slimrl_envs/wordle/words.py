"""The words of Wordle, from two packages of the extra `wordle`. The versions of the packages are pinned, so the words
are always the same.

Answers are the words of a dictionary (Webster's of 1934, from `english-words`, without most plurals and other forms)
that occur in subtitles and are not names. They are sorted by `pyspellchecker`'s counts in subtitles, the most common
word first. Every five-letter word of either package may be guessed.
"""

import functools
import re
from dataclasses import dataclass

from slimrl.environments.splits import split_by_hash
from slimrl.errors import require

WORD = re.compile(r"[a-z]{5}")
NAME = re.compile(r"[A-Z][a-z]{4}")


@dataclass(frozen=True, slots=True)
class WordList:
    """The words of the game. `answers` starts with the most common word. `allowed` has all words that may be guessed,
    including the answers."""

    answers: tuple[str, ...]
    allowed: frozenset[str]


@functools.cache
def word_list() -> WordList:
    """Return the word list, made from the two installed packages. Raise UserError if a package is not installed."""
    english_words, spellchecker = (require(name, "wordle", "wordle") for name in ("english_words", "spellchecker"))
    said = spellchecker.SpellChecker(language="en", distance=1).word_frequency.dictionary
    dictionary = english_words.get_english_words_set(["web2"], alpha=True)
    words = {word for word in dictionary if WORD.fullmatch(word)}
    names = {word.lower() for word in dictionary if NAME.fullmatch(word)}
    answers = sorted((words & said.keys()) - names, key=lambda word: (-said[word], word))
    return WordList(tuple(answers), frozenset(words.union(word for word in said if WORD.fullmatch(word))))


def is_held_out(word: str) -> bool:
    """Return True if `word`, or another text that is the key of a game, is in the test split. The result depends only
    on this text."""
    return split_by_hash(f"wordle/{word}") == "test"
