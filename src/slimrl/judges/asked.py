"""What a question has said already: its words and their inflections, and the candidates that it names.

A word that the question has said adds nothing to an answer, and may be left off. But a question may name the answer
itself ("Which of Rome and Bari ..."): then what it names beside it is another answer.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from slimrl.judges.word_lists import FILLERS, KINDS, TURNS
from slimrl.judges.words import CURRENCY, MARKS, bare, normalise

# What stands between two candidates: a symbol that is no part of a word, the end of a sentence, a line or a cell, a
# gap, and words. The last five may be a candidate themselves ("before or after").
BETWEEN = re.compile(
    rf"[^\w\s.'’!?+#♯♭%‰°{CURRENCY}{MARKS}-]|(?<!\S)[^\w\s]+(?!\S)|[.!?](?=\s)|(?<!\w)['’]|['’](?!\w)|[^\S ]|  "
    rf"|\b(?:{'|'.join(sorted(TURNS))})\b|\b(?=(?:after|before|to|versus|vs)\b)",
    re.IGNORECASE,
)
WHO = re.compile(r"(?:\w+ )?who(?:m|se)?\b", re.IGNORECASE)  # "By whom" too
CLASS = re.compile(r"\b(?:which|what) (\w+)(?= (?!(?:and|or)\b)\w)", re.IGNORECASE)  # of things: "Which lake is ..."
SENTENCE_END = (".", "!", "?", ":")
ENDINGS = ("s", "es", "d", "ed", "r", "er", "ers", "or", "ors", "ing", "ings", "ion", "ions")
MIN_BASE = 3


class Asked:
    """The words of a question."""

    def __init__(self, question: str) -> None:
        self._question = question

    def has(self, word: str) -> bool:
        """Whether the question has the word, or an inflection of it. A name has none but the genitive."""
        plain = _plain(word)
        return plain in self._words or not self._bases.isdisjoint(bases(plain))

    def is_name(self, word: str) -> bool:
        """Whether the question has the word as a name or a part of one."""
        return _plain(word) in self._names

    @property
    def is_for_somebody(self) -> bool:
        """Whether it is asked who it was."""
        return WHO.match(self._question) is not None

    @property
    def classes(self) -> frozenset[str]:
        """What it is asked which or what of: no candidate, but what all of them are."""
        return frozenset(map(_plain, normalise(" ".join(CLASS.findall(self._question)))))

    def rivals(self, wanted: Sequence[str]) -> frozenset[str]:
        """The words of which candidates are made, where these words are the answer: names, the first word, and what
        stands beside a comma, an "or" or the like. Each candidate touches one of these. A kind in a name is none, as in
        Mount Fuji."""
        reach = len(wanted) + 1  # another candidate may be longer
        beside = [word for piece in self._pieces[:-1] for word in piece[-reach:]]
        beside += [word for piece in self._pieces[1:] for word in piece[:reach]]
        found = self._names - KINDS | frozenset(map(_plain, [*beside, *self._pieces[0][:1]]))
        return found if FILLERS.issuperset(wanted) else found - FILLERS

    @cached_property
    def _pieces(self) -> list[list[str]]:
        """What stands between two separators, in words."""
        return [normalise(piece) for piece in BETWEEN.split(self._question.strip())]

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(map(_plain, normalise(self._question)))

    @cached_property
    def _names(self) -> frozenset[str]:
        """The capitalised words, apart from those that begin a sentence."""
        pairs = pairwise(self._question.split())
        inner = (raw for before, raw in pairs if raw != raw.lower() and not before.endswith(SENTENCE_END))
        return frozenset(_plain(word) for raw in inner for word in normalise(raw))

    @cached_property
    def _bases(self) -> frozenset[str]:
        return frozenset(base for word in self._words - self._names - FILLERS - TURNS for base in bases(word))


def bases(word: str) -> frozenset[str]:
    """The words of which this one may be an inflection, itself included.

    >>> sorted(bases("founded")), sorted(bases("cities")), bases("born") & bases("borneo")
    (['found', 'founde', 'founded'], ['citi', 'citie', 'cities', 'city'], frozenset())
    """
    found = {word}
    for ending in ENDINGS:
        stem = word.removesuffix(ending)
        if stem == word or len(stem) < MIN_BASE:
            continue
        found.add(stem)
        if ending[0] in "eio":
            found.add(stem + "e")  # make, making
            if stem[-1] == "i":
                found.add(f"{stem[:-1]}y")  # city, cities
            if stem[-1] == stem[-2]:
                found.add(stem[:-1])  # run, running
    return frozenset(found)


def _plain(word: str) -> str:
    return bare(word).removesuffix("'s").removesuffix("s'")
