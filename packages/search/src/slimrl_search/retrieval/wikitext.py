"""The module converts MediaWiki markup to markdown. Tables, pictures, references and most templates are left out."""

import html
import re
from collections.abc import Sequence
from typing import Any

from slimrl.errors import UserError, install_hint
from slimrl_search.retrieval.namespaces import Wiki
from slimrl_search.retrieval.templates import fold_name, lone_number, raise_text, write

GONE = re.compile(
    r"<(ref|gallery|math|timeline)\b[^>/]*>.*?</\1\s*>|<ref\b[^>]*/>|<!--.*?-->", re.DOTALL | re.IGNORECASE
)
TABLE = re.compile(r"^[ \t:]*\{\|(?:(?!^[ \t:]*\{\|).)*?^[ \t]*\|\}(?!\})", re.DOTALL | re.MULTILINE)  # the innermost
HIDDEN_TAGS = frozenset({"table", "mapframe", "maplink", "references", "indicator", "includeonly", "style"})
LINE_TAGS = frozenset({"br", "hr"})
# List markers in MediaWiki and in markdown; `#` would be a heading there.
LISTS = {"*": "*", "#": "1."}
SWITCH = re.compile(r"__[^\W\d_]+(?:_[^\W\d_]+)*__")  # `__NOTOC__`, in the language of the wiki
VARIANTS = re.compile(r"-\{(?:([^{}|]*)\|)?([^{}]*)\}-")  # `-{zh-hans:A; zh-hant:B}-`, of languages in two scripts
VARIANT = re.compile(r"\s*[a-z]{2,3}(?:-[a-z]+)*\s*:\s*([^;]*)")
TWO_SCRIPTS = frozenset({"zh", "sr", "kk", "ku", "uz", "tg", "iu", "gan", "crh", "shi"})
# Something is left out in this position. XML cannot contain the character, so no page does.
HOLE = "\x00"
HOLES = (
    (re.compile(r"[(（][\s,;:·\x00]*\x00[\s,;:·\x00]*[)）]"), HOLE),
    (re.compile(r"([(（])[\s,;:·\x00]*\x00[\s,;:·\x00]*"), r"\1"),
    (re.compile(r"[ \t]*\x00[ \t\x00]*(?=[.,;:!?)）、。]|$)", re.MULTILINE), ""),
    (re.compile(r"(^|[ \t])\x00[ \t\x00]*", re.MULTILINE), r"\1"),
    (re.compile(r"\x00+([ \t])|(?<=\w)\x00+(?=\w)"), " "),
    (re.compile(r"\x00+"), ""),
)
BEFORE_WORD = re.compile(r"[ \t(（\xa0~≈\u3040-\u30ff\u4e00-\u9fff]\Z")  # Japanese and Chinese have no spaces
MAX_UNKNOWN = 4  # parameters of an unknown template that may write a number
BLANK_LINES = re.compile(r"\n{3,}")


class UnreadableError(Exception):
    """Raised for unreadable markup; its message is the reason."""


def markdown_of(wikitext: str, wiki: Wiki) -> str:
    """Return the readable part of a wiki's article as markdown.

    Raises UnreadableError if the parser fails, and UserError without the extra `wikitext`.
    """
    parser = _parser()
    try:
        return _markdown(parser, wikitext, wiki)
    except Exception as error:  # the parser's errors have many types, and one page must not stop a dump of millions
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def _markdown(parser: Any, wikitext: str, wiki: Wiki) -> str:
    # Removed before parsing, which takes longer. A table may be inside another table's cell.
    text, is_changed = GONE.sub("", wikitext), 1
    while is_changed:
        text, is_changed = TABLE.subn("", text)
    text = _Renderer(parser, wiki).render(parser.parse(text).nodes)
    if wiki.language in TWO_SCRIPTS:
        text = VARIANTS.sub(lambda found: _variant(found[1] or "", found[2]), text)
    text = SWITCH.sub(lambda found: found[0] if found[0] != found[0].upper() else HOLE, text)
    for pattern, instead in HOLES:
        text = pattern.sub(instead, text)
    return BLANK_LINES.sub("\n\n", text).strip()


class _Renderer:
    """Writes the nodes of parsed markup as text, with a HOLE for each that has none."""

    def __init__(self, parser: Any, wiki: Wiki) -> None:
        self._kinds, self._is_visible, self._wiki = parser.nodes, parser.definitions.is_visible, wiki

    def render(self, nodes: Sequence[Any]) -> str:
        """Return the text of nodes, one after the other."""
        text = ""
        for node in nodes:
            part = self._node(node, text)
            # As in `5{{frac|1|2}}`, which is not 51/2.
            is_apart = isinstance(node, self._kinds.Template) and text[-1:].isdecimal() and part[:1].isdecimal()
            text += f" {part}" if is_apart else part
        return text

    def _code(self, code: Any) -> str:
        return self.render(code.nodes) if code is not None else ""

    def _node(self, node: Any, before: str) -> str:
        """Return the text of one node that follows the text `before`."""
        kinds = self._kinds
        match node:
            case kinds.Text():
                return str(node)
            case kinds.HTMLEntity():
                return html.unescape(str(node))
            case kinds.Heading():
                return f"{'#' * node.level} {self._code(node.title).strip()}"
            case kinds.Wikilink():
                return self._link(node, before)
            case kinds.Tag():
                return self._tag(node)
            case kinds.ExternalLink():
                return self._code(node.title) if node.brackets else str(node.url)
            case kinds.Template():
                return self._template(node, before)
            case kinds.Argument():
                return self._code(node.default)
        return ""  # a comment

    def _link(self, node: Any, before: str) -> str:
        target = self._code(node.title).strip()
        is_alone = node.text is None and before[-1:] in ("", "\n", HOLE)
        if not self._wiki.is_prose(target, is_alone):
            return HOLE
        return target.removeprefix(":") if node.text is None else self._code(node.text)

    def _tag(self, node: Any) -> str:
        if (markup := str(node.wiki_markup)) in LISTS:
            return LISTS[markup]
        name = str(node.tag).strip().casefold()
        if name in LINE_TAGS:
            return "\n"
        if name in HIDDEN_TAGS or not self._is_visible(name):
            return HOLE
        text = self._code(node.contents)
        return raise_text(text) if name == "sup" else text

    def _template(self, node: Any, before: str) -> str:
        name, colon, argument = self._code(node.name).partition(":")
        name, values = fold_name(name + colon), [argument.strip()] if colon else []
        named = {str(one.name).strip(): self._code(one.value).replace(HOLE, "").strip() for one in node.params}
        while (place := str(len(values) + 1 - bool(colon))) in named:
            values.append(named.pop(place))
        text = write(name, values, named, self._wiki.language)
        if text is None and not colon and len(node.params) <= MAX_UNKNOWN and BEFORE_WORD.match(before[-1:]):
            text = lone_number(values)
        return text or HOLE


def _variant(flags: str, text: str) -> str:
    """Return the text in the first script, from a text that is written in several."""
    if set(flags) & set("HT-"):
        return HOLE
    found = VARIANT.match(text)
    return found[1].strip() if found else text


def _parser() -> Any:
    try:
        import mwparserfromhell
    except ImportError as error:
        raise UserError(f"reading a MediaWiki dump needs `mwparserfromhell`: {install_hint('wikitext')}.") from error
    return mwparserfromhell
