"""The words of a short text, in one spelling where a difference of spelling makes none of meaning.

Case, articles, punctuation and separators of thousands are taken away. What tells two answers apart is kept: signs,
decimal points, powers, fractions, symbols, and the marks that make another letter.
"""

import re
import unicodedata
from collections.abc import Collection

ARTICLES = frozenset({"a", "an", "the"})
NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
NUMBERS = {word: str(number) for number, word in enumerate(NUMBER_WORDS.split())}
# The second of World War II and Louis XIV. Up to 49 they need no letter that is more often an initial (C, D, L, M).
NUMERAL = re.compile("(xl|x{0,3})(ix|iv|v?i{0,3})")
NUMERAL_PARTS = {"xl": 40, "ix": 9, "iv": 4, "x": 10, "v": 5, "i": 1}
# Done before compatible characters become the same: 10² is not 102, 3½ is not 31/2, and ≠ would lose its stroke.
POWER = re.compile(r"(?<=\d)(?=[⁺⁻]?[⁰¹²³⁴-⁹])")
INDEX = re.compile(r"(?<=\d)(?=[₀-₉])")
FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
COMPARISONS = str.maketrans({"≠": "!=", "≤": "<=", "⩽": "<=", "≥": ">=", "⩾": ">=", "¬": "!"})
# Done after it. The longest dash is no minus.
SAME = str.maketrans({"\u2019": "'", **dict.fromkeys("‐‑‒–−", "-"), "⁄": "/", "∕": "/"})
UNSEEN = re.compile("[\u034f\ufe00-\ufe0f\u20e3]")  # variation selectors and their like
SEPARATED_NUMBER = re.compile(r"(?<![\d.,/^])\d{1,3}([, ])\d{3}(?:\1\d{3})*(?!\d)")
CURRENCY = "$¢£¤¥฿₠-⃀"
UNIT = re.compile(f"[{CURRENCY}%‰‱°]")
MARKS = "".join(chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code))[0] == "M")
LETTER = f"(?:[^\\W_]|[{MARKS}])"
# A minus belongs to a number only where no word ends before it: in a range such as 10-20 it is no sign.
SIGN = rf"(?<![\w)\]%°-])-(?=[{CURRENCY}]?\.?\d)[{CURRENCY}]?"
POINT = r"(?<![\w.])\.(?=\d)"  # as in .5
# What joins two parts to one word. A slash behind a year is a dash: a season.
JOINT = rf"(?:[.'](?={LETTER})|(?<=\d)(?:[,·٫_*+×÷]|\^-?|(?<!\d\d\d\d)/)(?=\d))"
# As in C++ and F#, in the blood group B- and the open range 1914-.
ENDING = r"(?:\+\+?|[#♯♭]|(?<=\d)-(?!\s*\w)|(?<!\w\w\w)-(?!\w))"
WORD = re.compile(
    rf"!=|(?<![^\s(])!++|(?:{SIGN})?(?:{POINT})?{LETTER}+(?:{JOINT}{LETTER}+)*{ENDING}?"
    rf"|[^\w\s!]"
)
HARMLESS = frozenset("`^|+°©®✓✔✅")  # symbols that leave an answer what it is; all others change it
# What is put around an answer and says nothing of it. A ">" is a quote's only before a word: "> 5" is a comparison.
TAG = re.compile(r"</?(?:answer|final|final_answer|response|b|i|u|em|strong|code|p|br)\s*/?>", re.IGNORECASE)
QUOTE = re.compile(r"^(?:[ \t]*>)+[ \t]+(?=[\"'“*_`]*[^\W\d])", re.MULTILINE)
ARROW = re.compile(r"[→⇒➔➙➛➜➝➞➡⟶⟹]|(?<![<=>-])(?:--?>|==?>(?!\s*[-+.\d]))")
GLAD = re.compile("[☑☺⭐✨🌟🎉🎯🏆👌👍💯😀😁😃😄😊😎🙂🙏🤗][\U0001f3fb-\U0001f3ff]?")
CYRILLIC_VOWELS = "аеиоуыэюяієѣ"


def normalise(text: str) -> list[str]:
    """The words of a text in lower case, without articles, punctuation and separators of thousands. Numbers up to
    twenty, and Roman ones behind a word, are in digits; a symbol is a word; marks stay, each behind its letter.

    >>> normalise("The U.S. has 1,000 km²"), normalise("−5 ≠ .5"), normalise("I was in World War I")
    (['u.s', 'has', '1000', 'km2'], ['-5', '!=', '0.5'], ['was', 'in', 'world', 'war', '1'])
    """
    plain = SEPARATED_NUMBER.sub(_without_separators, _compatible(text))
    words: list[str] = []
    end = 0
    for found in WORD.finditer(plain):
        word = found[0]
        if is_sign(word) and not _counts(word):
            continue
        is_behind_word = bool(words) and not plain[end : found.start()].strip(" -")
        words.append(_numeral(_tidy(word)) if is_behind_word else _tidy(word))
        end = found.end()
    while words and set(words[-1]) == {"!"}:
        words.pop()  # what follows is negated, but nothing does
    # An article stands before a word: the last letter of "vitamin A" is none. The pronoun I says as little.
    ends_in_letter = len(words) > 1 and words[-1] == "a"
    kept = [word for word in words if bare(word) not in ARTICLES and word != "i"]
    kept = [*kept, *(["a"] if ends_in_letter else [])] or words  # a band is called The The
    return [NUMBERS.get(word, word) for word in kept]


def without_decoration(text: str) -> str:
    """The text without tags that show where an answer stands, marks of a quote, arrows, and glad faces.

    >>> without_decoration("<answer>Rome</answer>"), without_decoration("=> Rome 😊"), without_decoration("> 5 👎")
    (' Rome ', '  Rome  ', '> 5 👎')
    """
    for decoration in (TAG, QUOTE, ARROW, GLAD):
        text = decoration.sub(" ", text)
    return text


def is_sign(word: str) -> bool:
    """Whether a word has neither letter nor digit."""
    return not any(map(str.isalnum, word))


def units_of(text: str) -> frozenset[str]:
    """The signs of units in a text: currencies, per cent, degrees."""
    return frozenset(UNIT.findall(_compatible(text)))


def bare(word: str) -> str:
    """The word without the marks that may be left off.

    >>> bare(normalise("Málaga")[0]), bare(normalise("パ")[0]) == normalise("ハ")[0]
    ('malaga', False)
    """
    return word if word.isascii() else "".join(letter + must for letter, must, _ in _letters(word))


def spell_as(word: str, wanted: Collection[str]) -> str:
    """The one of some words that this one is, if marks were left off in either, otherwise the word itself. Two
    different marks on a letter make two words."""
    if word in wanted:
        return word
    mine = _letters(word)
    for other in wanted:
        letters = _letters(other)
        if [one[:2] for one in mine] == [one[:2] for one in letters] and all(
            has <= wants or wants <= has for (_, _, has), (_, _, wants) in zip(mine, letters, strict=True)
        ):
            return other
    return word


def _compatible(text: str) -> str:
    """The text in lower case, with characters that look different and mean the same as one of them."""
    text = FRACTION.sub(" ", INDEX.sub("_", POWER.sub("^", text.translate(COMPARISONS))))
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return UNSEEN.sub("", folded.translate(SAME))


def _without_separators(number: re.Match[str]) -> str:
    return number[0].replace(number[1], "")


def _counts(sign: str) -> bool:
    """Whether a sign has a symbol that may change an answer, or a stroke through what stands before it. Punctuation and
    currencies are none, and accents say nothing without a letter."""
    if "!" in sign:
        return True  # WORD finds it only where it may negate
    categories = {unicodedata.category(mark) for mark in sign if mark not in HARMLESS}
    return any(map(_is_overlay, sign)) or not categories.isdisjoint({"Sm", "So", "Sk"})


def _numeral(word: str) -> str:
    """A Roman number in digits, any other word as it is."""
    found = NUMERAL.fullmatch(word)
    if not word or found is None:
        return word
    tens, ones = found[1], found[2]
    value = NUMERAL_PARTS["xl"] if tens == "xl" else 10 * len(tens)
    value += NUMERAL_PARTS.get(ones, 0) or sum(NUMERAL_PARTS[letter] for letter in ones)
    return str(value)


def _tidy(word: str) -> str:
    """A number without the currency behind its sign, and with the zero before its point."""
    if word[0] not in "-.":
        return word
    return re.sub(r"^(-?)\.", r"\g<1>0.", UNIT.sub("", word))


def _letters(word: str) -> list[tuple[str, str, frozenset[str]]]:
    """Each letter of a word, with the marks that make another letter of it and with those that may be left off."""
    found: list[tuple[str, str, frozenset[str]]] = []
    for character in word:
        if found and unicodedata.category(character)[0] == "M":
            letter, must, may = found[-1]
            is_free = _may_be_left_off(letter, character)
            found[-1] = (letter, must, may | {character}) if is_free else (letter, must + character, may)
        else:
            found.append((character, "", frozenset()))
    return found


def _may_be_left_off(letter: str, mark: str) -> bool:
    """Whether people write a letter also without a mark: accents of Latin and Greek, stress and ё in Cyrillic, the
    points of Hebrew and Arabic. Not so й, パ, or the vowels of Indian scripts."""
    if _is_overlay(mark):
        return False
    if letter < "\u0400" or "\u0591" <= mark <= "\u05c7" or "\u064b" <= mark <= "\u0652" or mark == "\u0670":
        return True
    if "\u0653" <= mark <= "\u0655":
        return letter == "\u0627"  # alef, whose hamza is often not written
    return (mark in "\u0300\u0301" and letter in CYRILLIC_VOWELS) or (letter, mark) == ("е", "\u0308")


def _is_overlay(mark: str) -> bool:
    """Whether a mark strikes out what stands before it, or encloses it."""
    return unicodedata.category(mark) == "Me" or unicodedata.combining(mark) == 1
