"""Compares the words of a short answer with the words of a reference: the judge that needs no model.

This judge compares words, not meanings. If in doubt, it answers no. It rejects all answers that could exploit it: a
word that is part of many names, several candidates, a withdrawn answer, words in another order. So it also rejects some
right answers. `docs/judge.md` has the error rates and the limits.

A text is split into words, in which different spellings with the same meaning become the same word. Case, articles,
punctuation and separators of thousands are removed. Everything that distinguishes two answers is kept: signs, decimal
points, powers, fractions, symbols, and the marks of letters.
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

# The file explains the role of each list in a comparison.
LISTS = tomllib.loads(Path(__file__).with_name("word_lists.toml").read_text(encoding="utf-8"))
TURNS, FILLERS, RELATIONS, MODIFIERS, OF_NUMBERS, KINDS, QUALITIES = (
    frozenset(LISTS[name].split())
    for name in ("turns", "fillers", "relations", "modifiers", "of_numbers", "kinds", "qualities")
)
MONTHS = frozenset(name for month in LISTS["months"].split() for name in (month, month[:3]))
COMMON = KINDS | QUALITIES
ARTICLES = frozenset({"a", "an", "the"})
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
NUMBERS = {word: str(number) for number, word in enumerate(NUMBER_WORDS.split())}
# Roman numerals, as in World War II and Louis XIV. Up to 49, they need no letter that is usually an initial (C, D, L,
# M).
TENS, ONES = ("", "x", "xx", "xxx", "xl"), ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
NUMERALS = {ten + one: str(10 * tens + ones) for tens, ten in enumerate(TENS) for ones, one in enumerate(ONES)}
NUMBER = re.compile(r"-?\d+(?:[.,·٫_*+×÷/]\d+|\^-?\d+)*[-+]?")
# Replaced before compatible characters are unified: 10² is not 102, 3½ is not 31/2, and ≠ would lose its stroke.
POWER = re.compile(r"(?<=\d)(?=[⁺⁻]?[⁰¹²³⁴-⁹])")
INDEX = re.compile(r"(?<=\d)(?=[₀-₉])")
FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
COMPARISONS = str.maketrans({"≠": "!=", "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "¬": "!"})
# Replaced after that. The longest dash is left out, because it is not a minus.
SAME = str.maketrans({"\u2019": "'", **dict.fromkeys("‐‑‒–−", "-"), "⁄": "/", "∕": "/"})
UNSEEN = re.compile("[\u034f\ufe00-\ufe0f\u20e3]")  # variation selectors and similar characters
SEPARATED_NUMBER = re.compile(r"(?<![\d.,/^])\d{1,3}([, ])\d{3}(?:\1\d{3})*(?!\d)")
CURRENCY = "$¢£¤¥฿₠-⃀"
UNIT = re.compile(f"[{CURRENCY}%‰‱°]")
MARKS = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
LETTER = f"(?:[^\\W_]|[{MARKS}])"
# A minus belongs to a number only if no word precedes it directly: in a range such as 10-20 it is not a sign.
SIGN = rf"(?<![\w)\]%°-])-(?=[{CURRENCY}]?\.?\d)[{CURRENCY}]?"
POINT = r"(?<![\w.])\.(?=\d)"  # as in .5
# A sign between two parts of one word. A slash after a year does not join: it separates the years of a season.
JOINT = rf"(?:[.'](?={LETTER})|(?<=\d)(?:[,·٫_*+×÷]|\^-?|(?<!\d\d\d\d)/)(?=\d))"
# As in C++ and F#, in the blood group B- and the open range 1914-.
ENDING = r"(?:\+\+?|[#♯♭]|(?<=\d)-(?!\s*\w)|(?<!\w\w\w)-(?!\w))"
WORD = re.compile(
    rf"!=|(?<![^\s(])!++|(?:{SIGN})?(?:{POINT})?{LETTER}+(?:{JOINT}{LETTER}+)*{ENDING}?"
    rf"|[^\w\s!]"
)
SYMBOLS = frozenset({"Sm", "So", "Sk", "Me"})  # categories of signs that may change an answer
HARMLESS = frozenset("`^|+°©®✓✔✅")  # symbols that do not change an answer
# Marks that people omit: accents of Latin and Greek, stress and ё in Cyrillic, the points of Hebrew and Arabic. A
# stroke through a letter is not included, nor are the marks of й, パ and Indian vowels.
FREE_MARK = re.compile(
    "(?<=[0-9a-z\u00df-\u02ff\u0370-\u03ff])[\u0300-\u0333\u0339-\u036f]+|(?<=[аеиоуыэюяієѣ])[\u0300\u0301]|(?<=е)\u0308"
    "|(?<=\u0627)[\u064b-\u0655]+|[\u0591-\u05c7\u064b-\u0652\u0670]"
)
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
        # A name has a capital, and is not at the start of a sentence.
        pairs = pairwise(question.split())
        names = [raw for before, raw in pairs if raw != raw.lower() and not before.endswith(SENTENCE_END)]
        self._names = {_plain(word) for raw in names for word in normalise(raw)}
        self._words = {*map(_plain, normalise(question))}
        self._stems = {*map(stem, self._words - self._names - FILLERS - TURNS)}
        self.is_for_somebody = WHO.match(question) is not None

    def has(self, word: str) -> bool:
        """Return True if the question has the word or an inflection of the word. For a name, only the genitive counts
        as an inflection."""
        plain = _plain(word)
        return plain in self._words or stem(plain) in self._stems

    def is_name(self, word: str) -> bool:
        """Return True if the question has the word as a name or as a part of a name."""
        return _plain(word) in self._names


def stem(word: str) -> str:
    """Return the word without its inflection.

    >>> stem("discovered"), stem("cities"), stem("city"), stem("making"), stem("running"), stem("borneo")
    ('discov', 'cit', 'cit', 'mak', 'run', 'borneo')
    """
    return DOUBLED.sub(r"\1", INFLECTION.sub("", word))


def matches(answer: str, references: Sequence[str], question: str = "") -> bool:
    """Return True if the answer matches one of the references, in one of three ways.

    First, it has the same words. Second, it contains the reference as a phrase, and all other words are fillers. Words
    of the question count as fillers here, unless the question names the reference itself. Third, it has nearly the same
    words in the same order (`f1` of `MIN_F1` or more); all additional words are fillers, and all missing words are
    optional. In all cases, numbers, negations and symbols must equal the reference's, and no filler may replace another
    ("she" for "he").

    >>> matches("It was in 1,874.", ["1874"]), matches("1873 or 1874", ["1874"]), matches("not Rome", ["Rome"])
    (True, False, False)
    >>> matches("Ada was born in Rome", ["Rome"], "Where was Ada born?"), matches("Rome, Bari", ["Rome"])
    (True, False)
    """
    words, units, asked = normalise(answer), units_of(answer), Asked(question)
    for reference in references:
        wanted_units = units_of(reference)
        if units and wanted_units and units != wanted_units:
            continue  # an answer may omit the unit, but not have a different one
        if _says(words, normalise(reference), reference, asked):
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


def _says(words: list[str], wanted: list[str], reference: str, asked: Asked) -> bool:
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
    return _is_phrase(words, wanted, asked) or _is_nearly(words, wanted, reference, asked)


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


def _is_nearly(words: list[str], wanted: list[str], reference: str, asked: Asked) -> bool:
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
        and (f1(words, due) >= MIN_F1 or _places(words, due) != [])
    )


def _is_said(wanted: list[str], place: int, asked: Asked) -> bool:
    """Return True if an answer may omit the word at index `place` of a reference. This holds for a filler. It also
    holds for a kind of thing ("river") or the unit of a number if the question has the word: to "How many years?", the
    answer "44" is enough for "44 years"."""
    word = wanted[place]
    is_unit = place > 0 and NUMBER.fullmatch(wanted[place - 1]) is not None
    return word not in OF_NUMBERS and (word in FILLERS or ((word in KINDS or is_unit) and asked.has(word)))


def _optional_words(reference: str, asked: Asked) -> frozenset[str]:
    """Return the words of a reference that an answer may omit: initials, middle names of a person, and for anything
    else the word for its kind ("River").

    A reference counts as a person's name if its first and last word have capitals, and if it has no "of", "and",
    number, comma or word for a kind of thing. If the question asks who, the last word may be such a word, as in Martin
    Luther King.
    """
    parts, words = reference.split(), normalise(reference)
    initials = frozenset(word for part in parts[:-1] if INITIAL.fullmatch(part) for word in normalise(part))
    is_capital = parts[0][0].isupper() and parts[-1][0].isupper() and not PUNCTUATED.search(reference)
    things = COMMON & {*(words[:-1] if asked.is_for_somebody else words)}
    if not is_capital or things or numbers_of(words) or (FILLERS | TURNS) & {*words}:
        return initials | KINDS & {*words}
    num_last = len(normalise(parts[-1]))  # two words in Chang-Diaz
    return initials | {*words[1 : len(words) - num_last]}


def _relations(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in RELATIONS)


def _turns(words: Sequence[str]) -> Counter[str]:
    return Counter(word for word in words if word in TURNS or word.endswith("n't") or is_sign(word))


def _plain(word: str) -> str:
    return bare(word).removesuffix("'s").removesuffix("s'")


def normalise(text: str) -> list[str]:
    """Return the words of a text in lower case, without articles, punctuation and separators of thousands. Number words
    up to twenty, and Roman numerals after a word, become digits. A symbol counts as a word. An accent or other mark
    becomes a character after its letter. If a month precedes a day, the two are exchanged.

    >>> normalise("The U.S. has 1,000 km²"), normalise("−5 ≠ .5"), normalise("World War I, May 5")
    (['u.s', 'has', '1000', 'km2'], ['-5', '!=', '0.5'], ['world', 'war', '1', '5', 'may'])
    """
    plain = SEPARATED_NUMBER.sub(_without_separators, _compatible(text))
    words: list[str] = []
    end = 0
    for found in WORD.finditer(plain):
        word, between = found[0], plain[end : found.start()]
        if is_sign(word) and not _counts(word):
            continue
        if words and not between.strip(" -"):
            word = NUMERALS.get(word, word)
        if words and words[-1] in ARTICLES and between and not set(between) & set(",;/"):
            words.pop()  # an article precedes a word; the letters of "A, B" and "vitamin A" do not
        words.append(_tidy(word))
        end = found.end()
    while words and set(words[-1]) == {"!"}:
        words.pop()  # it would negate the next word, but there is none
    words = [NUMBERS.get(word, word) for word in words]
    for place in range(len(words) - 1):
        if words[place] in MONTHS and re.fullmatch(r"\d\d?", words[place + 1]):
            words[place : place + 2] = words[place + 1], words[place]
    return words


def is_sign(word: str) -> bool:
    """Return True if a word has neither letter nor digit."""
    return not any(map(str.isalnum, word))


def numbers_of(words: Collection[str]) -> list[str]:
    """Return the numbers among some words, in their order."""
    return [word for word in words if NUMBER.fullmatch(word)]


def units_of(text: str) -> frozenset[str]:
    """Return the signs of units in a text: currencies, per cent, degrees."""
    return frozenset(UNIT.findall(_compatible(text)))


def bare(word: str) -> str:
    """Return the word without marks that people often omit, such as accents in Latin.

    >>> bare(normalise("Málaga")[0]), bare(normalise("パ")[0]) == normalise("ハ")[0]
    ('malaga', False)
    """
    return word if word.isascii() else FREE_MARK.sub("", word)


def spell_as(word: str, wanted: Collection[str]) -> str:
    """Return the word of `wanted` that equals `word` except for optional marks, if one of the two has no such marks.
    Otherwise return `word`. Words with different marks on the same letter stay different."""
    if word in wanted:
        return word
    plain = bare(word)
    return next((other for other in wanted if plain == bare(other) and plain in (word, other)), word)


def _compatible(text: str) -> str:
    """Return the text in lower case. Different characters with the same meaning are replaced by the same character."""
    text = FRACTION.sub(" ", INDEX.sub("_", POWER.sub("^", text.translate(COMPARISONS))))
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return UNSEEN.sub("", folded.translate(SAME))


def _without_separators(number: re.Match[str]) -> str:
    return number[0].replace(number[1], "")


def _counts(sign: str) -> bool:
    """Return True if a sign may change an answer: a symbol, a stroke, or an exclamation mark (`WORD` only matches an
    exclamation mark that may negate). Return False for punctuation, currencies, and accents without a letter."""
    return any(
        mark not in HARMLESS
        and (mark == "!" or unicodedata.category(mark) in SYMBOLS or unicodedata.combining(mark) == 1)
        for mark in sign
    )


def _tidy(word: str) -> str:
    """Return a number without a currency after its minus, and with a zero before a leading point: "-0.5" for "-$.5"."""
    return re.sub(r"^(-?)\.", r"\g<1>0.", UNIT.sub("", word)) if word[0] in "-." else word
