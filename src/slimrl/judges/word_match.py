"""Compares the words of a short answer with those of a reference: the judge that needs no model.

It knows words, not meanings, and errs on the side of no: it refuses what a policy could exploit (naming several
candidates, taking back what it says), and so some right answers too. `docs/judge.md` says how often.
"""

import re
from collections import Counter
from collections.abc import Sequence

from slimrl.judges.words import COMPARES, bare, normalise, spell_as, units_of

NUMBER = re.compile(r"-?\d+(?:[.,·٫_*+×÷/]\d+|\^-?\d+)*[-+]?")
# Words that negate an answer, or make several of it. Two texts that say the same have the same of these.
TURN_WORDS = "and but either instead maybe neither never no none nor not or perhaps rather than unlike"
TURNS = frozenset(TURN_WORDS.split()) | COMPARES
CONJUNCTIONS = frozenset({"and", "either", "or"})  # on whose two sides the same may stand in any order
# Words without a content of their own: an answer may have them beside the reference's.
FILLER_WORDS = (
    "about according actually all also am answer answers approximately are around as at be been believe by called "
    "circa correct did do does exactly final for found from had has have he her his i in is it its known m name named "
    "namely of on page s said says section she so stands states that their there they think this to total was well "
    "were which who with year"
)
FILLERS = frozenset(FILLER_WORDS.split())
MAX_BESIDE = 12  # words beside the reference's that an answer may have, as in "It was founded in 1874"
# Words of a family share their first four letters; a word of three counts with the endings of a verb, as in `die`.
MIN_STEM, STEM = 3, 4
MIN_F1 = 0.8


def matches(answer: str, references: Sequence[str], question: str = "", min_f1: float = MIN_F1) -> bool:
    """Whether the answer says one of the references.

    It does if it has the same words, or has them as a phrase beside which all words are fillers or the question's, or
    has nearly the same words in any order (`f1` of `min_f1` or more, and every other word light). In all three cases
    its numbers and its negations must be those of the reference.

    >>> matches("It was in 1,874.", ["1874"]), matches("1873 or 1874", ["1874"]), matches("not Rome", ["Rome"])
    (True, False, False)
    >>> matches("Ada was born in Rome", ["Rome"], "Where was Ada born?"), matches("Rome, Bari", ["Rome"])
    (True, False)
    """
    words, units = normalise(answer), units_of(answer)
    asked = _families([bare(word) for word in normalise(question)])
    light = [_is_light(word, asked) for word in words]
    for reference in references:
        whole, wanted_units = normalise(reference), units_of(reference)
        if units and wanted_units and units != wanted_units:
            continue  # a unit may be left off, but not be another
        spelt = [spell_as(word, whole) for word in words]
        # Without the question's own words: "44" is as right as "44 years" where it was asked how many years.
        core = [word for word in whole if not _is_light(word, asked)]
        if any(_says(spelt, light, wanted, min_f1) for wanted in (whole, core)):
            return True
    return False


def f1(words: Sequence[str], wanted: Sequence[str]) -> float:
    """The F1 score of two bags of words, the harmonic mean of precision and recall (SQuAD, Rajpurkar et al. 2016).

    >>> f1(["george", "handel"], ["george", "frideric", "handel"])
    0.8
    """
    shared = (Counter(words) & Counter(wanted)).total()
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


def _says(words: list[str], light: list[bool], wanted: list[str], min_f1: float) -> bool:
    if not words or not wanted or _turns(words) != _turns(wanted) or _numbers(words) != _numbers(wanted):
        return False
    return words == wanted or _is_phrase(words, light, wanted) or _is_nearly(words, light, wanted, min_f1)


def _is_light(word: str, asked: re.Pattern[str]) -> bool:
    """Whether a word adds nothing: a filler, or of the family of a word of the question. A number is never light."""
    if NUMBER.fullmatch(word) or word in COMPARES:
        return False
    return bare(word) in FILLERS or asked.match(bare(word)) is not None


def _numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if NUMBER.fullmatch(word)]


def _turns(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in TURNS or word.endswith("n't"))


def _is_phrase(words: list[str], light: list[bool], wanted: list[str]) -> bool:
    """Whether the wanted words stand in the answer one after the other, and all words beside them are light."""
    size = len(wanted)
    if len(words) > size + MAX_BESIDE:
        return False
    found = (place for place in range(len(words) - size + 1) if words[place : place + size] == wanted)
    return any(all(light[:place] + light[place + size :]) for place in found)


def _is_nearly(words: list[str], light: list[bool], wanted: list[str], min_f1: float) -> bool:
    """Whether enough words are the same, and all others light: beside a short reference, the F1 score alone would
    allow another name."""
    beside = (word for word, is_light in zip(words, light, strict=True) if not is_light)
    return f1(words, wanted) >= min_f1 and all(word in wanted for word in beside) and _is_ordered(words, wanted)


def _is_ordered(words: list[str], wanted: list[str]) -> bool:
    """Whether the words that both have come in the same order where that matters: with several numbers, of which each
    belongs to a word, or with a word that negates what follows."""
    if len(_numbers(wanted)) < 2 and not _turns(wanted).keys() - CONJUNCTIONS:
        return True
    shared = set(words) & set(wanted) - set(_numbers(wanted))
    return [word for word in words if word in shared] == [word for word in wanted if word in shared]


def _families(question: Sequence[str]) -> re.Pattern[str]:
    """A pattern for the question's words and their families: "founded" allows "founder" and "die" allows "died", but
    "was" does not allow "Washington"."""
    long = {re.escape(word[:STEM]) for word in question if len(word) >= STEM}
    short = {f"{re.escape(word)}(?:s|d|ed)?$" for word in question if MIN_STEM <= len(word) < STEM}
    return re.compile("|".join(sorted(long | short)) or "(?!)")  # which matches nothing
