"""Reads the answer in a reply, and reads and compares numbers with their units.

The answer may have the requested form. Otherwise the lenient reader looks for other forms that models often use.

The lenient reader never chooses between candidates. It finds no answer in a reply with different candidates, a
negation, or an alternative ("6 or 7"). It knows neither the question nor the reference, so it cannot prefer the right
one.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from slimrl.models.chat.thoughts import without_thoughts

Form = Literal["lenient", "tag", "whole"]

MAX_CHARS = 20_000  # maximum length of a reply that is read leniently
MAX_ANSWER_CHARS = 200  # maximum length of an answer that is not in tags
MAX_WORDS = 5  # maximum number of words of a reply that is only an answer
MAX_NUMBER_CHARS = 60
SIGN, CURRENCY = r"[-+\u2212]", "[$€£¥]"
DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
NUMBER = re.compile(
    rf"(?P<sign>{SIGN})?(?P<currency>{CURRENCY})?(?P<inner>{SIGN})?(?P<value>{DIGITS}(?:\.\d*)?|\.\d+)"
    rf"(?:\s*/\s*(?P<below>\d+))?(?P<percent>%)?\.?",
    re.ASCII,
)

TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL)
ANY_TAG = re.compile(r"[<\[]/?answer[>\]]", re.IGNORECASE)
TAG_LIKE = re.compile(r"[<\[]answer[>\]]([^<\[\n]*)", re.IGNORECASE)  # in capitals, in brackets, or never closed
BOXED = re.compile(r"\\(?:boxed|fbox) ?\{((?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\})*)\}")
BOX = re.compile(r"\\(?:boxed|fbox) ?[\d{]")  # also a box that is never closed, or has too many nested braces
SAID = re.compile(r"\banswer(?: is|:| =)[ \t]*:?([^\n]*)", re.IGNORECASE)
SIDES = re.compile(r"(?<![!<>=~:])=(?!=)")
SUM = re.compile(r"[\w.$€£%()]+(?:\s*[-+*×·÷^]\s*[\w.$€£%()]+)*", re.ASCII)  # a middle side of a chain of equations
SENTENCE_END = re.compile(r"[.!;](?=\s|$)")
# Words that withdraw an answer, offer alternatives, or ask a question. A reply with such a word is not read leniently.
DOUBT = re.compile(
    r"\b(?:not|no|never|neither|nor|or|either|maybe|perhaps|possibly|unless|if|except|wrong|incorrect|false|un\w*sure|"
    r"cannot|options?|candidates?|choices?|any|all)\b|n['’]t\b|[?≠≈/|]|!=",
    re.IGNORECASE,
)
AROUND = " \t\r\n*_`\"'“”‘’.,;:!()[]"
# Marks beside a box that change its number: a sign, a power, a root, a unit. A dash after a word or at the start of a
# line is not a sign.
GAP = r"(?:[ \t$~(]|\\[,;:! (\[]){0,8}"
BEFORE_BOX = (
    r"[-+\u2212.%\d]\$*|(?<![a-z\\])[a-z]\$*"
    rf"|(?:[=(\[{{:,<>$]|\bis){GAP}[-+\u2212\u2013]{GAP}|(?:\b(?:minus|negative)|[√±^]|\\(?:sqrt|pm|mp)){GAP}"
    rf"|(?:[\^_]|\\(?:sqrt|[dtc]?frac|log|ln)(?:\[[^\[\]\n]*\])?(?:\{{[^{{}}\n]*\}})?)\{{{GAP}"
)
AFTER_BOX = (
    rf"\$*(?:[.,]?[%!\d]|[a-z{{]|_[{{\d])|{GAP}(?:[.,]?\^|\\?%|\\(?:sqrt|pi|[dt]?frac)\b"
    r"|(?:\\times|\\cdot|[×·*])\s*10\s*\^|(?:hundred|thousand|[a-z]+illion|per ?cent)\b)"
)
# Texts in which the reader would cut off a number's sign, point, unit or factorial: `5!`, `...5`, and marks beside a
# box or a tag.
CUT = re.compile(
    rf"\d\)?!|\.\.\d|(?:{BEFORE_BOX}){BOX.pattern}|{BOXED.pattern}(?:{AFTER_BOX})"
    r"|(?:[-+\u2212\d]|\d\.)\$*[<\[]answer[>\]]|[<\[]/answer[>\]]\$*\\?[%^]",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number. `unit` is a currency's sign, `%`, or empty."""

    value: Fraction
    unit: str = ""

    def equals(self, other: "Number") -> bool:
        """Return True if both numbers are the same amount. `5` equals `5` in any currency, but not `5%`."""
        units = {self.unit, other.unit}
        return self.value == other.value and (len(units) == 1 or ("" in units and "%" not in units))


def read_number(text: str) -> Number | None:
    """Parse a decimal, a fraction, an amount of money or a percentage; None if the text is anything else.

    >>> read_number("1,000.50"), read_number("-.5"), read_number("$5"), read_number("50%")
    (Number(value=Fraction(2001, 2), unit=''), Number(value=Fraction(-1, 2), unit=''), \
Number(value=Fraction(5, 1), unit='$'), Number(value=Fraction(50, 1), unit='%'))
    >>> read_number("6 or 7"), read_number("5!"), read_number("$5%"), read_number("1/0")
    (None, None, None, None)
    """
    found = NUMBER.fullmatch(text.strip()) if len(text) <= MAX_NUMBER_CHARS else None
    if found is None or (found["currency"] and found["percent"]) or (found["sign"] and found["inner"]):
        return None
    value, below = Fraction(found["value"].replace(",", "").removesuffix(".")), int(found["below"] or 1)
    if below == 0 or (found["below"] and "." in found["value"]):
        return None
    sign = found["sign"] or found["inner"] or "+"
    return Number((value if sign == "+" else -value) / below, found["currency"] or found["percent"] or "")


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer in a reply; `text` is None without an answer. `is_strict` is True for the requested form."""

    text: str | None
    is_strict: bool


def read_answer(reply: str, form: Form = "lenient") -> Answer:
    """Return the answer of a reply. Text inside the model's thoughts is ignored.

    `tag` reads the text in `<answer>` tags; the texts of several tags must be equal. `whole` reads the whole reply.
    `lenient` reads tags. If the reply has no tags, `lenient` reads the `candidates` of the text, which must agree.

    >>> read_answer("So <answer> 6 </answer>"), read_answer("1 + 5 = 6")
    (Answer(text='6', is_strict=True), Answer(text='6', is_strict=False))
    >>> read_answer("1 + 5 = 6, or 1 + 5 = 7").text, read_answer("The answer is not 6.").text
    (None, None)
    """
    visible = without_thoughts(reply).strip()
    if form == "whole":
        return Answer(visible or None, is_strict=True)
    if tagged := {text.strip() for text in TAG.findall(visible)}:
        return Answer(tagged.pop() if len(tagged) == 1 else None, is_strict=True)
    if form == "tag" or len(visible) > MAX_CHARS or DOUBT.search(ANY_TAG.sub("", visible)) or CUT.search(visible):
        return Answer(None, is_strict=False)
    if len(BOX.findall(visible)) != len(BOXED.findall(visible)):
        return Answer(None, is_strict=False)
    return Answer(_one_of({_clean(text) for text in candidates(visible)} - {""}), is_strict=False)


def _one_of(found: set[str]) -> str | None:
    """Return the only text in `found`. If all texts are the same number, return the shortest. Otherwise return None."""
    if len(found) < 2:
        return next(iter(found), None)
    shortest, *others = sorted(found, key=lambda text: (len(text), text))
    number = read_number(shortest)
    same = [number is not None and (one := read_number(other)) is not None and number.equals(one) for other in others]
    return shortest if all(same) else None


def candidates(text: str) -> list[str]:
    """Return all possible answers of a text without answer tags: the text after a broken tag, in `\\boxed{}` or after
    "the answer is", and each side of an equation if this side is a plain number. If the text has no tag, box or
    equation and at most `MAX_WORDS` words, return the text itself. Return nothing for a text with several equations in
    a sentence.

    >>> candidates("2 * 4 = 8 = 5 + 3. The answer is 8."), candidates("x = 8 and y = 8")
    (['8', '8'], [])
    """
    found = [*TAG_LIKE.findall(text), *BOXED.findall(text)]
    is_marked = bool(TAG_LIKE.search(text) or BOXED.search(text))
    for line in text.splitlines():
        for sentence in SENTENCE_END.split(line):
            said, sides = SAID.findall(BOXED.sub(r"\1", sentence)), [_clean(side) for side in SIDES.split(sentence)]
            if not all(SUM.fullmatch(side) for side in sides[1:-1]):
                return []
            found += said
            if len(sides) > 1:
                found += [side for side in sides if read_number(side)]
            is_marked = is_marked or bool(said) or len(sides) > 1
    if not is_marked and "\n" not in text and len(text.split()) <= MAX_WORDS and "," not in text:
        found.append(text)
    return found


def _clean(text: str) -> str:
    """Strip Markdown, quotes, LaTeX's dollars and punctuation from a candidate. Keep the point of `.5` and the sign of
    `$5`. Return an empty text if the candidate is too long, or if a comma or a separate point (`. 5`) precedes its
    digits."""
    stripped = text.strip(AROUND)
    while len(stripped) > 1 and stripped[0] == stripped[-1] == "$":
        stripped = stripped[1:-1].strip(" ")
    if stripped.endswith("$") and "$" not in stripped[:-1]:
        stripped = stripped[:-1].rstrip()  # the end of LaTeX in a line, as in "$x = 5$"
    opening = text[: text.index(stripped)]
    if "." in opening and stripped[:1].isdigit():
        stripped = f".{stripped}" if opening.endswith(".") else ""
    elif opening.endswith(",") and stripped[:1].isdigit():
        return ""
    return stripped if len(stripped) <= MAX_ANSWER_CHARS else ""
