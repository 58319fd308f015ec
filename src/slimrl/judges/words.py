"""Splits a short text into words. Different spellings with the same meaning become the same word.

Case, articles, punctuation and separators of thousands are removed. Everything that distinguishes two answers is kept:
signs, decimal points, powers, fractions, symbols, and the marks of letters.
"""

import re
import unicodedata
from collections.abc import Collection

from slimrl.judges.word_lists import MONTHS

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
# Decoration without meaning around an answer. A ">" marks a quote only before a word: "> 5" is a comparison.
DECORATION = re.compile(
    r"</?(?:answer|final|final_answer|response|b|i|u|em|strong|code|p|br)\s*/?>"
    r"|^(?:[ \t]*>)+[ \t]+(?=[\"'“*_`]*[^\W\d])|→|(?<![<=>-])(?:--?>|==?>(?!\s*[-+.\d]))"
    "|[☑🎉👍😀😁😃😄😊🙂][\U0001f3fb-\U0001f3ff]?",
    re.IGNORECASE | re.MULTILINE,
)


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


def without_decoration(text: str) -> str:
    """Remove tags that mark the answer, marks of a quote, arrows, and happy faces from a text.

    >>> without_decoration("<answer>Rome</answer>"), without_decoration("=> Rome 😊"), without_decoration("> 5 👎")
    (' Rome ', '  Rome  ', '> 5 👎')
    """
    return DECORATION.sub(" ", text)


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
