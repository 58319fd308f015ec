"""Compares the words of a short answer with the words of a reference: the judge that needs no model.

This judge compares words, not meanings. If in doubt, it answers no. It rejects all answers that could exploit it: a
word that is part of many names, several candidates, a withdrawn answer, words in another order. So it also rejects some
right answers. `docs/judge.md` has the error rates and the limits.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from slimrl.judges.word_lists import COMMON, FILLERS, KINDS, MODIFIERS, OF_NUMBERS, RELATIONS, TURNS
from slimrl.judges.words import NUMBER, bare, is_sign, normalise, numbers_of, spell_as, units_of, without_decoration

INVERTED = re.compile(r"([^,\d]+),([^,\d]+)")  # "Handel, George Frideric"
INITIAL = re.compile(r"\w\.")
PUNCTUATED = re.compile(r"[^\w\s.'’-]")
WHO = re.compile(r"(?:\w+ )?who(?:m|se)?\b", re.IGNORECASE)  # "By whom" too
SENTENCE_END = (".", "!", "?", ":")
INFLECTION = re.compile(r"(?<=\w\w\w)(?:s|ed|er|or|ing|ion|i?e|y|d|r)+$")
DOUBLED = re.compile(r"([^\W\d_])\1$")
MAX_BESIDE = 12  # words that an answer may have in addition to the reference's, as in "It was founded in 1874"
REACH = 3  # maximum distance in words at which a modifier changes the reference, as in "up to about 5"
MIN_F1 = 0.8


class Asked:
    """The words of a question. If an answer repeats these words, they add no information."""

    def __init__(self, question: str) -> None:
        self._question = question

    def has(self, word: str) -> bool:
        """Return True if the question has the word or an inflection of the word. For a name, only the genitive counts
        as an inflection."""
        plain = _plain(word)
        return plain in self._words or stem(plain) in self._stems

    def is_name(self, word: str) -> bool:
        """Return True if the question has the word as a name or as a part of a name."""
        return _plain(word) in self._names

    @property
    def is_for_somebody(self) -> bool:
        """True if the question asks for a person."""
        return WHO.match(self._question) is not None

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(map(_plain, normalise(self._question)))

    @cached_property
    def _names(self) -> frozenset[str]:
        """The capitalised words of the question, except at the start of a sentence."""
        pairs = pairwise(self._question.split())
        inner = (raw for before, raw in pairs if raw != raw.lower() and not before.endswith(SENTENCE_END))
        return frozenset(_plain(word) for raw in inner for word in normalise(raw))

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset(map(stem, self._words - self._names - FILLERS - TURNS))


def stem(word: str) -> str:
    """Return the word without its inflection.

    >>> stem("discovered"), stem("cities"), stem("city"), stem("making"), stem("running"), stem("borneo")
    ('discov', 'cit', 'cit', 'mak', 'run', 'borneo')
    """
    return DOUBLED.sub(r"\1", INFLECTION.sub("", word))


def matches(answer: str, references: Sequence[str], question: str = "", min_f1: float = MIN_F1) -> bool:
    """Return True if the answer matches one of the references, in one of three ways.

    First, it has the same words. Second, it contains the reference as a phrase, and all other words are fillers. Words
    of the question count as fillers here, unless the question names the reference itself. Third, it has nearly the same
    words in the same order (`f1` of `min_f1` or more); all additional words are fillers, and all missing words are
    optional. In all cases, numbers, negations and symbols must equal the reference's, and no filler may replace another
    ("she" for "he").

    >>> matches("It was in 1,874.", ["1874"]), matches("1873 or 1874", ["1874"]), matches("not Rome", ["Rome"])
    (True, False, False)
    >>> matches("Ada was born in Rome", ["Rome"], "Where was Ada born?"), matches("Rome, Bari", ["Rome"])
    (True, False)
    """
    units, asked = units_of(answer), Asked(question)
    plain = without_decoration(answer)
    readings = [normalise(text) for text in dict.fromkeys([answer, plain])]
    inverted = INVERTED.fullmatch(plain.strip(" ."))
    for reference in references:
        wanted, wanted_units = normalise(reference), units_of(reference)
        if units and wanted_units and units != wanted_units:
            continue  # an answer may omit the unit, but not have a different one
        if any(_says(words, wanted, reference, asked, min_f1) for words in readings):
            return True
        if inverted and "," not in reference and normalise(f"{inverted[2]} {inverted[1]}") == wanted:
            return True
    return False


def f1(words: Sequence[str], wanted: Sequence[str]) -> float:
    """Return the F1 score of two bags of words, the harmonic mean of precision and recall (SQuAD, Rajpurkar et al.
    2016).

    >>> f1(["george", "handel"], ["george", "frideric", "handel"])
    0.8
    """
    shared = (Counter(words) & Counter(wanted)).total()
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


def _says(words: list[str], wanted: list[str], reference: str, asked: Asked, min_f1: float) -> bool:
    if not words or len(words) > len(wanted) + MAX_BESIDE:
        return False
    words = [spell_as(word, wanted) for word in words]
    if words == wanted:
        return True
    if FILLERS.issuperset(wanted) or _turns(words) != _turns(wanted) or numbers_of(words) != numbers_of(wanted):
        return False
    relations, wanted_relations = _relations(words), _relations(wanted)
    if relations - wanted_relations and wanted_relations - relations:
        return False
    return _is_phrase(words, wanted, asked) or _is_nearly(words, wanted, reference, asked, min_f1)


def _is_phrase(words: list[str], wanted: list[str], asked: Asked) -> bool:
    """Return True if the answer contains `wanted` as a phrase, and its other words do not change the meaning."""
    for place in _places(words, wanted):
        before, behind = words[:place], words[place + len(wanted) :]
        others = [word for word in before + behind if word not in FILLERS]
        # A question that names the reference may name other candidates too.
        is_light = not others or (all(map(asked.has, others)) and not _is_named(wanted, asked))
        if is_light and not _changes(before, behind, asked):
            return True
    return False


def _places(words: list[str], wanted: list[str]) -> list[int]:
    """Return the positions at which `words` contains `wanted` as a phrase."""
    return [place for place in range(len(words) - len(wanted) + 1) if words[place : place + len(wanted)] == wanted]


def _is_named(wanted: list[str], asked: Asked) -> bool:
    """Return True if the question contains a word of the reference. If the reference has other words, its fillers, its
    units after numbers, and kinds of things such as "river" do not count."""
    units = {word for number, word in pairwise(wanted) if NUMBER.fullmatch(number)}
    return any(map(asked.has, [word for word in wanted if word not in FILLERS | KINDS | units] or wanted))


def _changes(before: list[str], behind: list[str], asked: Asked) -> bool:
    """Return True if the words around a reference change its meaning: a modifier shortly before it ("before the year
    1874"), a name from the question directly before it ("New York"), a word and "of" before it ("the mother of Ada",
    but not "the city of Rome"), or after it a word that changes a number ("5 million")."""
    if not MODIFIERS.isdisjoint(before[-REACH:]) or not OF_NUMBERS.isdisjoint(behind[:1]):
        return True
    is_across = before[-1:] == ["of"] and not {*before[-2:-1]} <= FILLERS | KINDS
    return is_across or any(asked.is_name(word) for word in before[-1:] if word not in FILLERS | KINDS)


def _is_nearly(words: list[str], wanted: list[str], reference: str, asked: Asked, min_f1: float) -> bool:
    """Return True if enough words are equal and in the same order, all other words of the answer are fillers, and all
    missing words are optional. The F1 score alone would accept a short reference with a second name beside it, or only
    a part of a common name."""
    kept = [word for word in words if word in wanted]
    due = [word for place, word in enumerate(wanted) if word in kept or not _is_said(wanted, place, asked)]
    return (
        all(word in FILLERS or word in wanted for word in words)
        and any(NUMBER.fullmatch(word) or not (word in FILLERS | COMMON or asked.has(word)) for word in kept)
        and set(due) - set(kept) <= _optional_words(reference, asked)
        and kept == [word for word in due if word in kept]
        and (f1(words, due) >= min_f1 or _places(words, due) != [])
    )


def _is_said(wanted: list[str], place: int, asked: Asked) -> bool:
    """Return True if an answer may omit the word at index `place` of a reference. This holds for a filler. It also
    holds for a kind of thing ("river") or the unit of a number if the question has the word: to "How many years?", the
    answer "44" is enough for "44 years"."""
    word = wanted[place]
    is_unit = place > 0 and NUMBER.fullmatch(wanted[place - 1]) is not None
    return word not in OF_NUMBERS and (word in FILLERS or ((word in KINDS or is_unit) and asked.has(word)))


def _optional_words(reference: str, asked: Asked) -> frozenset[str]:
    """Return the words of a reference that an answer may omit: initials, given names of a person, and for anything else
    the word for its kind ("River").

    A reference counts as a person's name if its first and last word have capitals, and if it has no "of", "and",
    number, comma or word for a kind of thing. If the question asks who, the last word may be such a word, as in Martin
    Luther King. The first name is optional if the question asks who, or if the last name has two parts.
    """
    parts, words = reference.split(), normalise(reference)
    initials = frozenset(word for part in parts[:-1] if INITIAL.fullmatch(part) for word in normalise(part))
    is_capital = parts[0][0].isupper() and parts[-1][0].isupper() and not PUNCTUATED.search(reference)
    things = COMMON & {*(words[:-1] if asked.is_for_somebody else words)}
    if not is_capital or things or numbers_of(words) or (FILLERS | TURNS) & {*words}:
        return initials | KINDS & {*words}
    last = len(normalise(parts[-1]))
    return initials | frozenset(words[0 if asked.is_for_somebody or last > 1 else 1 : -last or None])


def _relations(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in RELATIONS)


def _turns(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in TURNS or word.endswith("n't") or is_sign(word))


def _plain(word: str) -> str:
    return bare(word).removesuffix("'s").removesuffix("s'")
