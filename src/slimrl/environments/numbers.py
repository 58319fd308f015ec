"""Parses a number with its unit, and compares numbers. A text that is not exactly one number is parsed as None."""

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_CHARS = 60
SIGN, CURRENCY = r"[-+\u2212]", "[$€£¥]"
DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
NUMBER = re.compile(
    rf"(?P<sign>{SIGN})?(?P<currency>{CURRENCY})?(?P<inner>{SIGN})?(?P<value>{DIGITS}(?:\.\d*)?|\.\d+)"
    rf"(?:\s*/\s*(?P<below>\d+))?(?P<percent>%)?\.?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Number:
    """An exact number. `unit` is a currency's sign, `%`, or empty."""

    value: Fraction
    unit: str = ""

    def equals(self, other: "Number") -> bool:
        """Return True if both are the same amount. A missing currency matches any currency; `5%` is not `5`."""
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
    found = NUMBER.fullmatch(text.strip()) if len(text) <= MAX_CHARS else None
    if found is None or (found["currency"] and found["percent"]) or (found["sign"] and found["inner"]):
        return None
    value, below = Fraction(found["value"].replace(",", "").removesuffix(".")), int(found["below"] or 1)
    if below == 0 or (found["below"] and "." in found["value"]):
        return None
    sign = found["sign"] or found["inner"] or "+"
    return Number((value if sign == "+" else -value) / below, found["currency"] or found["percent"] or "")
