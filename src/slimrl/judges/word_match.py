"""Compares the words of a short answer with those of a reference: the judge that needs no model.

It knows words, not meanings, and errs on the side of no: it refuses what a policy could exploit (a part of a name that
many things bear, several candidates, taking back what was said, another order), and so some right answers too.
`docs/judge.md` says how often, and what it does not look at.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.judges.asked import Asked
from slimrl.judges.word_lists import BRIDGES, COMMON, FILLERS, KINDS, MODIFIERS, MONTHS, OF_NUMBERS, RELATIONS, TURNS
from slimrl.judges.words import bare, is_sign, normalise, spell_as, units_of, without_decoration

NUMBER = re.compile(r"-?\d+(?:[.,·٫_*+×÷/]\d+|\^-?\d+)*[-+]?")
INVERTED = re.compile(r"([^,]+),([^,]+)")  # "Handel, George Frideric"
INITIAL = re.compile(r"\w\.")
PUNCTUATED = re.compile(r"[^\w\s.'’-]")
MAX_BESIDE = 12  # words beside the reference's that an answer may have, as in "It was founded in 1874"
MIN_F1 = 0.8


def matches(answer: str, references: Sequence[str], question: str = "", min_f1: float = MIN_F1) -> bool:
    """Whether the answer says one of the references.

    It does if it has the same words, or has them as a phrase beside which all words are light, or has nearly the same
    words in the same order (`f1` of `min_f1` or more, every other word light, and nothing left off that carries the
    reference). Light are fillers and words of the question, except modifiers ("before") and names ("New") directly
    before the reference, and except "am" and the like behind a number. In all three cases its numbers, its negations
    and its symbols must be those of the reference, and no filler may stand for another ("she" for "he").

    >>> matches("It was in 1,874.", ["1874"]), matches("1873 or 1874", ["1874"]), matches("not Rome", ["Rome"])
    (True, False, False)
    >>> matches("Ada was born in Rome", ["Rome"], "Where was Ada born?"), matches("Rome, Bari", ["Rome"])
    (True, False)
    """
    units, asked = units_of(answer), Asked(question)
    readings = [normalise(text) for text in dict.fromkeys([answer, without_decoration(answer)])]
    if inverted := INVERTED.fullmatch(without_decoration(answer).strip(" .")):
        names = normalise(f"{inverted[2]} {inverted[1]}")
    for reference in references:
        wanted_units = units_of(reference)
        if units and wanted_units and units != wanted_units:
            continue  # a unit may be left off, but not be another
        ways = _readings(reference, asked)
        if any(_says(words, wanted, asked, min_f1) for words in readings for wanted in ways):
            return True
        if inverted and names == normalise(reference) and not _numbers(names) and "," not in reference:
            return True
    return False


def f1(words: Sequence[str], wanted: Sequence[str]) -> float:
    """The F1 score of two bags of words, the harmonic mean of precision and recall (SQuAD, Rajpurkar et al. 2016).

    >>> f1(["george", "handel"], ["george", "frideric", "handel"])
    0.8
    """
    shared = (Counter(words) & Counter(wanted)).total()
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The words of a reference, those that may be left off, its relations, and words that may not stand beside it."""

    words: list[str]
    optional: frozenset[str]
    relations: Counter[str]
    rivals: frozenset[str] = frozenset()


def _readings(reference: str, asked: Asked) -> list[_Wanted]:
    """The ways in which a reference can be said: as a whole, and without the question's own words, since "44" is as
    right as "44 years" where it was asked how many years.

    What is neither light nor common carries it. Where nothing does, or the question names a part of it among others,
    the question names candidates: then what it names must be said, and no other.
    """
    whole = normalise(reference)
    relations = _relations(whole)
    own, rivals = frozenset(map(bare, whole)), asked.rivals(whole)
    heavy = {word for place, word in enumerate(whole) if bare(word) in MODIFIERS or _is_of_number(whole, place)}
    if all(word in COMMON for word in whole if word in heavy or not _is_light(word, asked)):
        return [_Wanted(whole, frozenset(word for word in whole if bare(word) in FILLERS), relations, rivals - own)]
    named = rivals & own - asked.classes
    core = [word for word in whole if bare(word) in named or word in heavy or not _is_light(word, asked)]
    optional = frozenset() if named else _optional_words(reference, asked)
    barred = rivals - own if named else frozenset()
    loose = optional | (frozenset(whole) - frozenset(core))
    return [_Wanted(whole, loose, relations, barred), _Wanted(core, optional, relations, barred)]


def _optional_words(reference: str, asked: Asked) -> frozenset[str]:
    """The words of a reference that do not carry it: initials, a person's given names, and what another thing is.

    A person's name has capitals, and particles such as "van", but no "of", "and", number or comma, and no word that
    things are called by; but where it was asked who, the last word may be one, as in Martin Luther King. The first name
    may be left off where it was asked who, or where the last has two parts.
    """
    parts, words = reference.split(), normalise(reference)
    initials = frozenset(word for part in parts[:-1] if INITIAL.fullmatch(part) for word in normalise(part))
    is_capital = parts[0][0].isupper() and parts[-1][0].isupper() and not PUNCTUATED.search(reference)
    things = COMMON & {*(words[:-1] if asked.is_for_somebody else words)}
    if not is_capital or things or _numbers(words) or (FILLERS | TURNS) & {*words}:
        return initials | KINDS & {*words}
    last = len(normalise(parts[-1]))
    return initials | frozenset(words[0 if asked.is_for_somebody or last > 1 else 1 : -last or None])


def _says(words: list[str], wanted: _Wanted, asked: Asked, min_f1: float) -> bool:
    size = len(wanted.words)
    if len(words) > max(size + MAX_BESIDE, size * (2 / min_f1 - 1)):
        return False  # neither a phrase nor nearly the same
    spelt = [spell_as(word, wanted.words) for word in words]
    if not spelt or _turns(spelt) != _turns(wanted.words) or _numbers(spelt) != _numbers(wanted.words):
        return False
    if spelt == wanted.words:
        return True
    relations = _relations(spelt)
    if relations - wanted.relations and wanted.relations - relations:
        return False
    light = [_is_light(word, asked) and bare(word) not in wanted.rivals for word in spelt]
    light = [is_light and not _qualifies(spelt, place, wanted.words, asked) for place, is_light in enumerate(light)]
    return _is_phrase(spelt, light, wanted.words) or _is_nearly(spelt, light, wanted, min_f1)


def _is_light(word: str, asked: Asked) -> bool:
    """Whether a word adds nothing: a filler, or said by the question. A number is never light, nor is a symbol."""
    return not (NUMBER.fullmatch(word) or is_sign(word)) and (bare(word) in FILLERS or asked.has(word))


def _is_of_number(words: Sequence[str], place: int) -> bool:
    return bare(words[place]) in OF_NUMBERS and place > 0 and NUMBER.fullmatch(words[place - 1]) is not None


def _qualifies(words: list[str], place: int, wanted: list[str], asked: Asked) -> bool:
    """Whether a light word makes something else of the reference: one behind a number, or a modifier or name of the
    question directly before it ("New York"), or any word of the question before it and "of" ("the mother of Ada"). What
    it is asked which of does not, nor a kind: Lake Garda, the city of Rome."""
    word, behind = bare(words[place]), words[place + 1 : place + 3]
    if words[place] in wanted or word in asked.classes | KINDS - MODIFIERS:
        return False
    if _is_of_number(words, place):
        return True
    is_before = behind[:1] != [] and behind[0] in wanted
    is_across = len(behind) > 1 and behind[0] in BRIDGES and behind[1] in wanted
    if word in MODIFIERS:
        return is_before or is_across
    if word in FILLERS:
        return False
    return (is_before and asked.is_name(word)) or (is_across and behind[0] == "of")


def _numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if NUMBER.fullmatch(word)]


def _relations(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in map(bare, words) if word in RELATIONS)


def _turns(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in TURNS or word.endswith("n't") or is_sign(word))


def _is_phrase(words: list[str], light: list[bool], wanted: list[str]) -> bool:
    """Whether the wanted words stand in the answer one after the other, and all words beside them are light."""
    size = len(wanted)
    if len(words) > size + MAX_BESIDE:
        return False
    found = (place for place in range(len(words) - size + 1) if words[place : place + size] == wanted)
    return any(all(light[:place] + light[place + size :]) for place in found)


def _is_nearly(words: list[str], light: list[bool], wanted: _Wanted, min_f1: float) -> bool:
    """Whether enough words are the same, all others light, and those that are missing optional: the F1 score alone
    would allow another name beside a short reference, and a part of a name that many bear."""
    beside = (word for word, is_light in zip(words, light, strict=True) if not is_light)
    missing = Counter(wanted.words) - Counter(words)
    return (
        f1(words, wanted.words) >= min_f1
        and all(word in wanted.words for word in beside)
        and all(word in wanted.optional for word in missing)
        and _is_ordered(words, wanted.words)
    )


def _is_ordered(words: list[str], wanted: list[str]) -> bool:
    """Whether the words that both have come in the same order. A month may stand before or after its day."""
    shared = set(words) & set(wanted) - (MONTHS if _numbers(wanted) else frozenset())
    return [word for word in words if word in shared] == [word for word in wanted if word in shared]
