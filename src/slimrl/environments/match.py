"""Whether a short answer says what a reference says, by comparing words: the judge that needs no model."""

import re
import unicodedata
from collections.abc import Sequence

ARTICLES = frozenset({"a", "an", "the"})
SEPARATOR_IN_NUMBER = re.compile(r"(?<=\d)[,\u2009\u202f ](?=\d{3}(?!\d))")
WORD = re.compile(r"[^\W_]+(?:[.']\w+)*")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
MAX_BESIDE = 8  # words beside the reference's that an answer may have, as in "It was founded in 1874"


def matches(answer: str, references: Sequence[str]) -> bool:
    """Whether the answer is one of the references, or a short phrase with all of its words in their order and, where it
    is a number, no other number.

    >>> matches("It was founded in 1,874.", ["1874"]), matches("1873 or 1874", ["1874"]), matches("1874!", ["1873"])
    (True, False, False)
    """
    words = normalised(answer)
    return bool(words) and any(_says(words, normalised(reference)) for reference in references)


def normalised(text: str) -> list[str]:
    """The words in lower case, without accents, articles, punctuation and the separators of thousands."""
    plain = unicodedata.normalize("NFKD", SEPARATOR_IN_NUMBER.sub("", text.casefold()))
    words = WORD.findall("".join(character for character in plain if not unicodedata.combining(character)))
    return [word for word in words if word not in ARTICLES]


def _says(words: list[str], wanted: list[str]) -> bool:
    if not wanted or len(words) > len(wanted) + MAX_BESIDE:
        return False
    places = range(len(words) - len(wanted) + 1)
    if not any(words[place : place + len(wanted)] == wanted for place in places):
        return False
    numbers = [word for word in words if NUMBER.fullmatch(word)]
    return numbers == [word for word in wanted if NUMBER.fullmatch(word)]
