"""Converts MediaWiki markup to markdown, with mwparserfromhell and a few rules.

Tables, pictures, references and most templates are left out. A dump has the calls of templates but not their
definitions. So this module lists the common templates whose output is a part of a sentence, such as a number, a
quantity or a date. An unknown template whose only value is a number becomes that number. No units are converted, and
nothing is computed.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from slimrl.errors import require

ARTICLE, FILE, CATEGORY = 0, 6, 14
NAMESPACES = {"media": -2, "special": -1, "file": FILE, "image": FILE, "category": CATEGORY}  # valid in every wiki
# Links to files are also recognised by suffix, because a wiki may no longer know an old name of the namespace.
MEDIUM = re.compile(r".*\.(?:jpe?g|png|gif|svg|webp|tiff?|pdf|djvu|og[gv]|flac|wav|mp[34]|webm)\s*", re.IGNORECASE)
GONE = re.compile(
    r"<(ref|gallery|math|timeline)\b[^>/]*>.*?</\1\s*>|<ref\b[^>]*/>|<!--.*?-->", re.DOTALL | re.IGNORECASE
)
TABLE = re.compile(r"^[ \t:]*\{\|(?:(?!^[ \t:]*\{\|).)*?^[ \t]*\|\}(?!\})", re.DOTALL | re.MULTILINE)  # innermost
HIDDEN_TAGS = frozenset({"table", "mapframe", "maplink", "references", "indicator", "includeonly", "style"})
LINE_TAGS = frozenset({"br", "hr"})
# List markers in MediaWiki and in markdown. In markdown, `#` would be a heading.
LISTS = {"*": "*", "#": "1."}
SWITCH = re.compile(r"__[^\W\d_a-z]+__")  # such as `__NOTOC__`, in any language
# The mark of a position where something is left out. XML cannot contain this character, so no page contains it.
HOLE = "\x00"
HOLES = (
    (re.compile(r"[ \t]*[(（][\s,;:·]*\x00[\s,;:·\x00]*[)）]"), ""),
    (re.compile(r"([(（])[\s,;:·\x00]*\x00[\s,;:·\x00]*"), r"\1"),
    (re.compile(r"[ \t]*\x00[ \t\x00]*(?=[.,;:!?)）、。\n]|\Z)|^\x00[ \t\x00]*", re.MULTILINE), ""),
    (re.compile(r"[ \t]*\x00[ \t\x00]*"), " "),
    (re.compile(r"\n{3,}"), "\n\n"),
)
# The names of templates, keyed by the text that a template writes. A name with a colon is a parser function.
TEXTS = {
    "{first}": (
        "formatnum:, formatnum, formatzahl, nowrap, nobr, small, big, abbr, tooltip, sub, em, strong, smallcaps, nts, "
        "num, number, date table sorting, val"
    ),
    "{last}": "lang, langue, transl, transliteration, sort, ill",
    "{name}{first}": "us$, a$, c$, nz$, r$, hk$, £, €, ¥, ₹, ₩",
    "{name} {first}": "usd, aud, cad, gbp, eur, jpy, cny, inr, chf",
    "as of {first}": "as of",
    "c. {first}": "circa, c., ca, ca.",
    "": "0, ntsh, dtsh, hs, rp, r, age, sfn, sfnp, note, efn, p, page",
    "–": "ndash, –, dash, en dash",
    " – ": "snd, spnd, spaced ndash",
    "—": "mdash, —, em dash",
    " ": "nbsp, space, spaces, thinsp",
    "'": "', apostrophe",
    "|": "!",
}
# Templates that write their first numbers, and then a unit.
QUANTITY = "quantity"
QUANTITIES = {QUANTITY: "convert, cvt, unité, unidad, unità, unidade, fmtn, nombre, zahl, число"}
BETWEEN = frozenset({"to", "and", "or", "by", "x", "×", "-", "a", "à", "y", "e", "bis"})  # words between two numbers
# Templates whose numbers are joined by a sign.
JOINED = {
    "-": (
        "start date, start date and age, end date, birth date, birth date and age, death date, death date and age, "
        "film date, release date, fecha, дата, datum"
    ),
    "/": "frac, fraction, sfrac, bruch, fracción",
}
RULES = {name: rule for rule, names in (TEXTS | QUANTITIES | JOINED).items() for name in names.split(", ")}
NUMBER = re.compile(r"[~≈±]?\s*[-+−–]?\d[\d.,'\s+/]*(?:e[-+−]?\d+)?", re.IGNORECASE)
RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")


class UnreadableError(Exception):
    """Raised for unreadable markup; its message is the reason."""


@dataclass(frozen=True, slots=True)
class Wiki:
    """The wiki of a dump. `namespaces` maps the names of namespaces to their numbers, from the dump's `<siteinfo>`."""

    namespaces: Mapping[str, int]

    def namespace_of(self, title: str) -> int:
        """Return the namespace number of a page's title or a link's target; 0 is the namespace of articles."""
        prefix, colon, _ = title.partition(":")
        name = _fold(prefix)
        own = {_fold(key): number for key, number in self.namespaces.items()}
        return (NAMESPACES | own).get(name, ARTICLE) if colon and name else ARTICLE

    def is_prose(self, target: str) -> bool:
        """Return True if a link's text is part of the article's text. A link to a file or a category is not."""
        if number := self.namespace_of(target):
            return number not in (FILE, CATEGORY)
        return target.count(":") != 1 or target.startswith(":") or not MEDIUM.fullmatch(target)


def markdown_of(wikitext: str, wiki: Wiki) -> str:
    """Return the readable part of a wiki's article as markdown.

    Raises UnreadableError if the parser fails, and UserError if the pip extra `wikitext` is not installed.
    """
    parser = require("mwparserfromhell", "wikitext", "reading a MediaWiki dump")
    # Remove these parts before parsing, because the parser is slower. A table may be inside another table's cell.
    text, is_changed = GONE.sub("", wikitext), 1
    while is_changed:
        text, is_changed = TABLE.subn("", text)
    try:
        text = _Renderer(parser, wiki).render(parser.parse(text).nodes)
    except Exception as error:  # the parser's errors have many types, and one page must not stop a dump of millions
        raise UnreadableError(f"{type(error).__name__}: {error}") from error
    text = SWITCH.sub(HOLE, text)
    for pattern, instead in HOLES:
        text = pattern.sub(instead, text)
    return text.strip()


class _Renderer:
    """Converts the nodes of parsed markup to text. A part that is left out becomes the placeholder HOLE."""

    def __init__(self, parser: Any, wiki: Wiki) -> None:
        self._kinds, self._is_visible, self._wiki = parser.nodes, parser.definitions.is_visible, wiki

    def render(self, nodes: Sequence[Any]) -> str:
        """Return the text of nodes, one after the other."""
        text = ""
        for node in nodes:
            part = self._node(node, text)
            # Separate the numbers in `5{{frac|1|2}}`, which is not 51/2.
            is_apart = isinstance(node, self._kinds.Template) and text[-1:].isdecimal() and part[:1].isdecimal()
            text += f" {part}" if is_apart else part
        return text

    def _code(self, code: Any) -> str:
        return self.render(code.nodes) if code is not None else ""

    def _node(self, node: Any, before: str) -> str:
        """Return the text of one node. `before` is the text of the nodes before it."""
        kinds = self._kinds
        match node:
            case kinds.Text():
                return str(node)
            case kinds.HTMLEntity():
                return html.unescape(str(node))
            case kinds.Heading():
                return f"{'#' * node.level} {self._code(node.title).strip()}"
            case kinds.Wikilink():
                target = self._code(node.title).strip()
                shown = target.removeprefix(":") if node.text is None else self._code(node.text)
                return shown if self._wiki.is_prose(target) else HOLE
            case kinds.Tag():
                return self._tag(node)
            case kinds.ExternalLink():
                return self._code(node.title) if node.brackets else str(node.url)
            case kinds.Template():
                return self._template(node, before)
            case kinds.Argument():
                return self._code(node.default)
        return ""  # a comment

    def _tag(self, node: Any) -> str:
        if (markup := str(node.wiki_markup)) in LISTS:
            return LISTS[markup]
        name = str(node.tag).strip().casefold()
        if name in LINE_TAGS:
            return "\n"
        if name in HIDDEN_TAGS or not self._is_visible(name):
            return HOLE
        text = self._code(node.contents)
        return text.translate(RAISED) if name == "sup" and NUMBER.fullmatch(text) else text

    def _template(self, node: Any, before: str) -> str:
        name, colon, argument = self._code(node.name).partition(":")
        rule = RULES.get(_fold(name) + colon)
        named = {str(one.name).strip(): self._code(one.value).replace(HOLE, "").strip() for one in node.params}
        values = [argument.strip()] if colon else []
        values += [value for key, value in named.items() if key.isdecimal()]
        values = [value for value in values if value]
        if rule is None:  # an unknown template after a space writes its only value if that is a number
            is_number = len(values) == 1 and NUMBER.fullmatch(values[0]) and before[-1:] in tuple(" \xa0(~≈")
            return values[0] if is_number else HOLE
        if rule in JOINED:
            return rule.join(value for value in values if NUMBER.fullmatch(value)) or HOLE
        if rule == QUANTITY:
            numbers = list(takewhile(lambda value: NUMBER.fullmatch(value) or value in BETWEEN, values))
            return " ".join(values[: len(numbers) + 1]) or HOLE
        first, last = (values[0], values[-1]) if values else ("", "")
        return rule.format(name=name.strip().upper(), first=first, last=last) or HOLE


def _fold(name: str) -> str:
    """Return a name as MediaWiki compares it: in lower case, without direction marks, and with a space for each `_`."""
    return " ".join(re.sub("[\u200e\u200f]", "", name).replace("_", " ").split()).casefold()
