"""The module tells what a template writes into a sentence: a number, a quantity, a date, a dash, a wrapped text.

A dump has the calls of templates and not what they write, so the common ones of several languages are known here by
their names. Of others a number that stands where a word would is written. Nothing is converted or computed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MONTH_NAMES = "January February March April May June July August September October November December"
MONTHS = MONTH_NAMES.split()
MAX_DAY = 31  # a larger number in a date is a year
NUMBER = re.compile(r"[~≈<>±]?\s*[-+−–]?\d[\d.,·'\s+/⁄]*(?:e[-+−]?\d+)?", re.IGNORECASE)
RAISED = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")
# What stands between the numbers of a range, and how it is written.
JOINER_WORDS = "to and or by × ± a à y et e bis und до и от"
JOINERS = {word: word for word in JOINER_WORDS.split()} | {"-": "–", "–": "–", "*": "×", "x": "×", "+/-": "±"}
SMALLER = frozenset(
    {"in", "ft", "yd", "lb", "oz", "ch", "cwt"}
)  # units in which a quantity of two units ends: 6 ft 2 in
UNIT_NAMES = {"c": "°C", "f": "°F", "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km²", "cuft": "cu ft", "kph": "km/h"}
POWER = re.compile(r"(?<=[^\W\d])([23])(?=/|$)")  # as in `km2`, and in `m3/s`
UNIT_SYMBOLS = (
    "m km cm mm nm dm g kg mg t l L ml hl ha a s min h d Hz kHz MHz GHz W kW MW GW kWh V kV A mA J kJ MJ Pa hPa kPa K "
    "C F °C °F ° % ‰ ft in mi yd lb oz st mph kn km/h m/s m2 km2 cm2 m3 km3 m² km² cm² m³ km³ м км см мм г кг т л га ч "
    "мин с"
)
UNITS = frozenset(UNIT_SYMBOLS.split())


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a template in a wiki of some language: the template's folded name, and its parameters as text."""

    name: str
    values: Sequence[str]
    named: Mapping[str, str]
    language: str = "en"

    def first(self, *names: str) -> str:
        """The first of some named parameters that is not empty, or an empty text."""
        return next((self.named[name] for name in names if self.named.get(name)), "")

    def value(self, place: int) -> str:
        """The parameter without a name at a place, or an empty text."""
        return self.values[place] if place < len(self.values) else ""


Writer = Callable[[Call], str]


def writer_of(name: str, language: str) -> Writer | None:
    """A function that returns what the template with a folded name writes, or None where that is not known.

    >>> writer_of("convert", "en")(Call("convert", ["5", "km2", "sqmi"], {}))
    '5 km²'
    """
    if name.startswith("lang-"):
        return _first
    return WRITERS.get(f"{language}:{name}") or WRITERS.get(name)


def fold_name(name: str) -> str:
    """A template's name as this module has it: in lower case, with a space for `_`."""
    return " ".join(name.replace("_", " ").split()).casefold()


def lone_number(values: Sequence[str]) -> str:
    """The number that an unknown template probably writes, which has no other; with its unit, if it has a known one.

    >>> lone_number(["12", "km"]), lone_number(["51", "30", "N"])
    ('12 km', '')
    """
    if not values or not NUMBER.fullmatch(values[0]) or any(map(NUMBER.fullmatch, values[1:])) or len(values) > 2:
        return ""
    return _join_words(values[0], _unit(values[1]) if values[1:] and values[1] in UNITS else "")


def raise_text(text: str) -> str:
    """The text as superscript if it is a number, otherwise as it is.

    >>> raise_text("-6"), raise_text("th")
    ('⁻⁶', 'th')
    """
    return text.translate(RAISED) if re.fullmatch(r"[-+−]?\d+|n", text) else text


def _first(call: Call) -> str:
    return call.value(0)


def _second(call: Call) -> str:
    return call.value(1) or call.value(0)


def _write_nothing(call: Call) -> str:
    return ""


def _join_words(*words: str) -> str:
    return " ".join(word for word in words if word)


def _number(text: str) -> str:
    """A number as it is read: `2+1/2` is two and a half."""
    return re.sub(r"(?<=\d)\+(?=\d+[/⁄])", " ", text)


def _unit(code: str) -> str:
    return POWER.sub(lambda found: raise_text(found[1]), UNIT_NAMES.get(code.casefold(), code))


def _quantity(call: Call) -> str:
    """A number and its unit, as in `unité|7|m|s|-1`; what is no number behind the first is a unit or a power."""
    number, *rest = [value for value in call.values if value] or [""]
    unit = ""
    for value in rest:
        if not NUMBER.fullmatch(value):
            unit += f"⋅{value}" if unit else _unit(value)
        elif unit:
            unit += raise_text(value)
    return _with_unit(call, number, unit)


def _value(call: Call) -> str:
    """A number with its uncertainty, as `val` of several wikis: `val|1.2|0.3|e=5|u=km`."""
    number, *doubt = [value for value in call.values if value] or [""]
    signed = "".join(value if value[0] in "+-−" else f"±{value}" for value in doubt[:2] if NUMBER.fullmatch(value))
    unit = next((value for value in doubt if not NUMBER.fullmatch(value)), "")
    return _with_unit(call, number + signed, unit)


def _with_unit(call: Call, number: str, unit: str) -> str:
    power = call.first("e")
    number = f"{call.first('p')}{_number(number)}{f'×10{raise_text(power)}' if power else ''}{call.first('s')}"
    unit = unit or _unit(call.first("u", "ul", "unit", "unité", "unidad"))
    per = call.first("up", "upl")
    return _join_words(number, f"{unit}/{_unit(per)}" if per else unit)


def _conversion(call: Call) -> str:
    """The quantity that `convert` is given, or the range; what it is converted to is left out."""
    values = [value for value in call.values if value]
    written: list[str] = []
    while values and NUMBER.fullmatch(values[0]) and (not written or (len(values) > 1 and values[1] in SMALLER)):
        written.append(_number(values.pop(0)))
        while len(values) > 1 and values[0] in JOINERS and NUMBER.fullmatch(values[1]):
            written += [JOINERS[values[0]], _number(values[1])]
            values = values[2:]
        if values:
            written.append(_unit(values.pop(0)))
    return " ".join(written) or call.value(0)


def _money(call: Call) -> str:
    sign = {"euro": "€", "currency": call.value(1)}.get(call.name, call.name.upper())
    return f"{sign} {call.value(0)}" if sign.isalpha() else f"{sign}{call.value(0)}"


def _fraction(call: Call) -> str:
    parts = [value for value in call.values if value]
    if len(parts) > 2:
        return f"{parts[0]} {parts[1]}/{parts[2]}"
    return "/".join(parts if len(parts) == 2 else ["1", *parts])


def _circa(call: Call) -> str:
    return " – ".join(f"c. {value}" for value in call.values if value) or "c."


def _power_of_ten(call: Call) -> str:
    return f"{'' if call.name == '10^' else '×'}10{raise_text(call.value(0))}"


def _ordinal(call: Call) -> str:
    number = call.value(0)
    teens = number[-2:] in ("11", "12", "13")
    return number + ("th" if teens else {"1": "st", "2": "nd", "3": "rd"}.get(number[-1:], "th"))


def _raise(call: Call) -> str:
    return raise_text(call.value(0))


def _clock(call: Call) -> str:
    return ":".join(value for value in call.values if value)


def _french_time(call: Call) -> str:
    marks = zip(call.values, ("h", "min", "s"), strict=False)
    return " ".join(f"{value} {mark}" for value, mark in marks if value).removesuffix(" min")


def _french_century(call: Call) -> str:
    century = "" if call.name.endswith("-") else "siècle"
    return _join_words(f"{call.value(0)}{call.value(1) or 'e'}", century)


def _century(call: Call) -> str:
    word = {"s": "siglo", "séc": "século", "sec": "secolo", "segle": "segle"}.get(call.name, call.name)
    return _join_words(word, call.value(0))


def _as_of(call: Call) -> str:
    return call.first("alt") or _join_words("as of" if call.named.get("lc") else "As of", _date(call))


def _date(call: Call) -> str:
    """A date from its parts in either order: in words where they are, or in English, and otherwise as ISO 8601."""
    parts = [value for value in call.values if value][:3]
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return " ".join(parts)
    if int(parts[0]) <= MAX_DAY:
        parts.reverse()
    year, month, *day = map(int, parts)
    if not 1 <= month <= len(MONTHS):
        return " ".join(call.values[:3])
    if call.language != "en":
        return "-".join([str(year), *(f"{number:02}" for number in (month, *day))])
    if not day:
        return f"{MONTHS[month - 1]} {year}"
    is_day_first = bool(call.first("df", "dmy"))
    return f"{day[0]} {MONTHS[month - 1]} {year}" if is_day_first else f"{MONTHS[month - 1]} {day[0]}, {year}"


def _constant(text: str) -> Writer:
    return lambda call: text


# Names with a colon behind them are parser functions; with a language before one, of wikis in that language alone.
NAMES: Mapping[Writer, str] = {
    _first: (
        "formatnum:, zahlenformat:, formatonúmero:, formatearnúmero:, formatnombre:, форматчисла:, formatarnum:, "
        "formatanúmero:, formatteernum:, 数値整形:, lc:, uc:, lcfirst:, ucfirst:, formatnum, formatzahl, nowrap, nobr, "
        "nobreak, nowr, nobold, small, big, smaller, larger, abbr, tooltip, sub, math, em, strong, smallcaps, flag, "
        "nobr romains, rom, rom-maj, lnobr, ru:s, uk:s, pl:j, birth-date, death-date, start-date, end-date, start "
        "date text, birth year and age, 仮リンク, ill, interlanguage link, 読み仮名"
    ),
    _second: "lang, langue, transl, transliteration, sort, lang1",
    _write_nothing: (
        "0, ntsh, dtsh, nhs, hs, rp, r, anchor, ancre, anker, якорь, age, percentage, sfn, sfnp, note, efn, p, page"
    ),
    _quantity: (
        "unité, unite, unit, unidad, unitats, unità, unidade, unidades, quantity, fmtn, num, number, nombre, nb, "
        "zahl, число, it:m, esd, nts, number table sorting, xifra, getal, maß"
    ),
    _value: "val, значение",
    _conversion: "convert, cvt, conv, conversion, converti, converter, convertir, conversione, umrechnen, تحويل",
    _money: (
        "us$, usd, a$, aud, c$, cad, nz$, nzd, £, gbp, €, eur, euro, ¥, jpy, cny, ₹, inr, chf, ₩, krw, ₽, rub, r$, "
        "brl, hk$, hkd, s$, sgd, currency"
    ),
    _fraction: "frac, fraction, sfrac, bruch, frazione, fracción, дробь",
    _circa: "circa, c., ca, ca., cca",
    _power_of_ten: "e, 10^, x10^, ×10^, esp, notation",
    _ordinal: "ordinal, ord, nth",
    _raise: "sup, fr:e, fr:exp, fr:exposant, x²",
    _clock: "duration, time duration",
    _french_time: "heure, heures, heure légale",
    _french_century: "fr:s, fr:s-, fr:siècle",
    _century: "siglo, es:s, pt:séc, it:sec, segle",
    _as_of: "as of",
    _date: (
        "date, date-, start date, start date and age, end date, birth date, birth date and age, bda, death date, "
        "death date and age, film date, release date, launch date, dts, date table sorting, date de naissance, date "
        "de décès, date rapide, date rapide2, fecha, fecha de inicio, fecha de nacimiento, fecha de fallecimiento, "
        "it:data, pt:data, pl:data, dni, morte, dtlink, data de nascimento, data de nascimento e idade, дата, дата "
        "рождения, др, datum, datumzelle, 生年月日と年齢, 死亡年月日と没年齢, 死亡年月日, flagdate"
    ),
    _constant("–"): "ndash, –, dash, en dash",
    _constant(" – "): "snd, spnd, spaced ndash, spaced en dash, snds",
    _constant("—"): "mdash, —, em dash",
    _constant(" "): "nbsp, space, spaces, thinsp, thin space, hair space",
    _constant("−"): "minus, −",
    _constant("×"): "times, ×",
    _constant("±"): "+-, ±, plusminus",
    _constant("'"): "', apostrophe",
    _constant("="): "=",
    _constant("|"): "!",
    _constant(" · "): "·, dot, middot",
}
WRITERS = {name: writer for writer, names in NAMES.items() for name in names.split(", ")}
