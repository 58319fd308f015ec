"""The module writes the text of a template call in a sentence: a number, a quantity, a dash, a wrapped text.

A dump has the calls of templates but not their texts. So a table has format strings for the common templates of several
languages, and quantities have a rule. An unknown template in place of a word gives its only number. Nothing is
converted or computed.
"""

import re
from collections.abc import Mapping, Sequence

NUMBER = re.compile(r"[~≈<>±]?\s*[-+−–]?\d[\d.,·'\s+/⁄]*(?:e[-+−]?\d+)?", re.IGNORECASE)
RAISED = str.maketrans("0123456789+-−n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻ⁿ")
# The words and signs between the numbers of a range, with their written form.
JOINER_WORDS = "to and or by × ± a à y et e bis und до и от"
JOINERS = {word: word for word in JOINER_WORDS.split()}
JOINERS |= {"-": "–", "–": "–", "*": "×", "x": "×", "+/-": "±"}
SMALLER = frozenset({"in", "ft", "yd", "lb", "oz", "ch", "cwt"})  # the second unit of a quantity, as in 6 ft 2 in
UNIT_NAMES = {"c": "°C", "f": "°F", "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km²", "cuft": "cu ft", "kph": "km/h"}
POWER = re.compile(r"(?<=[^\W\d])([23])(?=/|$)")  # as in `km2`, and in `m3/s`
UNIT_SYMBOLS = (
    "m km cm mm nm dm g kg mg t l L ml hl ha a s min h d Hz kHz MHz GHz W kW MW GW kWh V kV A mA J kJ MJ Pa hPa kPa K "
    "C F °C °F ° % ‰ ft in mi yd lb oz st mph kn km/h m/s m2 km2 cm2 m3 km3 m² km² cm² m³ km³ м км см мм г кг т л га ч "
    "мин с"
)
UNITS = frozenset(UNIT_SYMBOLS.split())
# Templates by their texts. A text is one for each number of parameters; the last is used for more as well. `up` is the
# first parameter raised, `name` the template's name in capitals. A name with a colon after it is a parser function; a
# name with a language before it belongs to wikis in that language alone.
TEXTS = {
    "{0}": (
        "formatnum:, zahlenformat:, formatonúmero:, formatearnúmero:, formatnombre:, форматчисла:, formatarnum:, "
        "formatanúmero:, formatteernum:, 数値整形:, lc:, uc:, lcfirst:, ucfirst:, formatnum, formatzahl, nowrap, nobr, "
        "nobreak, nowr, nobold, small, big, smaller, larger, abbr, tooltip, sub, math, em, strong, smallcaps, flag, "
        "nobr romains, rom, rom-maj, lnobr, ru:s, uk:s, pl:j, birth-date, death-date, start-date, end-date, start "
        "date text, birth year and age, 仮リンク, ill, interlanguage link, 読み仮名"
    ),
    "{0} | {1}": "lang, langue, transl, transliteration, sort, lang1",
    "": "0, ntsh, dtsh, nhs, hs, rp, r, anchor, ancre, anker, якорь, age, percentage, sfn, sfnp, note, efn, p, page",
    "{name}{0}": "us$, a$, c$, nz$, £, €, ¥, ₹, ₩, ₽, r$, hk$, s$",
    "{name} {0}": "usd, aud, cad, nzd, gbp, eur, jpy, cny, inr, chf, krw, rub, brl, hkd, sgd",
    "€{0}": "euro",
    "1/{0} | {0}/{1} | {0} {1}/{2}": "frac, fraction, sfrac, bruch, frazione, fracción, дробь",
    "c. {0} | c. {0} – c. {1}": "circa, c., ca, ca., cca",
    "×10{up}": "e, x10^, ×10^, esp, notation",
    "10{up}": "10^",
    "{up}": "sup, fr:e, fr:exp, fr:exposant, x²",
    "{0} | {0}:{1} | {0}:{1}:{2}": "duration, time duration",
    "{0} h | {0} h {1} | {0} h {1} min {2} s": "heure, heures, heure légale",
    "{0}e siècle | {0}{1} siècle": "fr:s, fr:siècle",
    "{0}e | {0}{1}": "fr:s-",
    "siglo {0}": "siglo, es:s",
    "século {0}": "pt:séc",
    "secolo {0}": "it:sec",
    "segle {0}": "segle",
    "as of {0} | as of {0}-{1} | as of {0}-{1}-{2}": "as of",
    "{0} {1} {2}": "date, date-, date rapide, date rapide2, date de naissance, date de décès",
    "{0} | {0}-{1} | {0}-{1}-{2}": (
        "start date, start date and age, end date, birth date, birth date and age, bda, death date, death date and "
        "age, film date, release date, launch date, dts, date table sorting, fecha, fecha de inicio, fecha de "
        "nacimiento, fecha de fallecimiento, it:data, pt:data, pl:data, dni, morte, dtlink, data de nascimento, data "
        "de nascimento e idade, дата, дата рождения, др, datum, datumzelle, 生年月日と年齢, 死亡年月日と没年齢, "
        "死亡年月日, flagdate"
    ),
    "–": "ndash, –, dash, en dash",
    " – ": "snd, spnd, spaced ndash, spaced en dash, snds",
    "—": "mdash, —, em dash",
    " ": "nbsp, space, spaces, thinsp, thin space, hair space",
    "−": "minus, −",
    "×": "times, ×",
    "±": "+-, ±, plusminus",
    "'": "', apostrophe",
    "=": "=",
    " · ": "·, dot, middot",
}
TEXT_OF = {name: text.split(" | ") for text, names in TEXTS.items() for name in names.split(", ")} | {"!": ["|"]}
# A number with a unit, which may be composed (`unité|7|m|s|-1`), or with its uncertainty (`val|1.2|0.3|u=km`).
QUANTITIES = (
    "unité, unite, unit, unidad, unitats, unità, unidade, unidades, quantity, fmtn, num, number, nombre, nb, zahl, "
    "число, it:m, esd, nts, number table sorting, xifra, getal, maß, val, значение"
)
# A quantity or a range. The units to which it is converted are left out.
CONVERSIONS = "convert, cvt, conv, conversion, converti, converter, convertir, conversione, umrechnen, تحويل"
RULES = {name: names for names in (QUANTITIES, CONVERSIONS) for name in names.split(", ")}


def write(name: str, values: Sequence[str], named: Mapping[str, str], language: str) -> str | None:
    """Return the text of the template with a folded name and these parameters, or None if the template is unknown.

    >>> write("convert", ["5", "km2", "sqmi"], {}, "en"), write("circa", ["1850"], {}, "en")
    ('5 km²', 'c. 1850')
    """
    key = local if (local := f"{language}:{name}") in TEXT_OF or local in RULES else name
    values = [value for value in values if value]
    if key in RULES:
        return _conversion(values) if RULES[key] is CONVERSIONS else _quantity(values, named)
    texts = ["{0}"] if name.startswith("lang-") else TEXT_OF.get(key)
    if texts is None:
        return None
    text = texts[min(max(len(values), 1), len(texts)) - 1]
    given = [*values, *[""] * 3]  # a parameter that is not given is empty
    filled = text.format(*given, up=raise_text(given[0]), name=name.upper())
    return filled if text == filled else filled.strip(" -")


def fold_name(name: str) -> str:
    """Return a template's name as this module spells it: in lower case, with a space for `_`."""
    return " ".join(name.replace("_", " ").split()).casefold()


def lone_number(values: Sequence[str]) -> str:
    """Return the number that an unknown template probably writes, with a known unit after it; empty with other numbers.

    >>> lone_number(["12", "km"]), lone_number(["51", "30", "N"])
    ('12 km', '')
    """
    if not values or not NUMBER.fullmatch(values[0]) or any(map(NUMBER.fullmatch, values[1:])) or len(values) > 2:
        return ""
    return " ".join([values[0], *(_unit(value) for value in values[1:] if value in UNITS)])


def raise_text(text: str) -> str:
    """Return the text as superscript if it is a number, otherwise unchanged.

    >>> raise_text("-6"), raise_text("th")
    ('⁻⁶', 'th')
    """
    return text.translate(RAISED) if re.fullmatch(r"[-+−]?\d+|n", text) else text


def _number(text: str) -> str:
    """Return a number as people read it: `2+1/2` is two and a half."""
    return re.sub(r"(?<=\d)\+(?=\d+[/⁄])", " ", text)


def _unit(code: str) -> str:
    return POWER.sub(lambda found: raise_text(found[1]), UNIT_NAMES.get(code.casefold(), code))


def _quantity(values: Sequence[str], named: Mapping[str, str]) -> str:
    """Return a number with uncertainty, power of ten and unit; a number after a unit is its power."""
    number, unit = _number(values[0]) if values else "", ""
    for value in values[1:]:
        if not NUMBER.fullmatch(value):
            unit += f"⋅{value}" if unit else _unit(value)
        elif unit:
            unit += raise_text(value)
        else:
            number += value if value[0] in "+-−" else f"±{value}"
    power = f"×10{raise_text(named['e'])}" if named.get("e") else ""
    unit = unit or _unit(next((named[key] for key in ("u", "ul", "unit", "unité", "unidad") if named.get(key)), ""))
    per = named.get("up") or named.get("upl")
    return f"{named.get('p', '')}{number}{power}{named.get('s', '')} {unit}{f'/{_unit(per)}' if per else ''}".strip()


def _conversion(values: list[str]) -> str:
    """Return the quantity or range to convert, in one unit or in two, such as feet and inches."""
    rest, written = list(values), list[str]()
    while rest and NUMBER.fullmatch(rest[0]) and (not written or (len(rest) > 1 and rest[1] in SMALLER)):
        written.append(_number(rest.pop(0)))
        while len(rest) > 1 and rest[0] in JOINERS and NUMBER.fullmatch(rest[1]):
            written += [JOINERS[rest[0]], _number(rest[1])]
            rest = rest[2:]
        if rest:
            written.append(_unit(rest.pop(0)))
    return " ".join(written) or (values[0] if values else "")
