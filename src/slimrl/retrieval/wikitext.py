"""The module converts MediaWiki markup to markdown. Templates, tables, files and references are left out."""

import re
from typing import Any

from slimrl.errors import UserError, install_hint

HEADING = re.compile(r"^(={1,6})\s*(.+?)\s*\1\s*$", re.MULTILINE)
GONE = re.compile(
    r"<(ref|gallery|math|timeline)\b[^>/]*>.*?</\1\s*>|<ref\b[^>]*/>|<!--.*?-->", re.DOTALL | re.IGNORECASE
)
TABLE = re.compile(r"^\{\|.*?^\|\}", re.DOTALL | re.MULTILINE)
NOT_PROSE = re.compile(r"^\[\[(?:File|Image|Category|Datei|Bild|Kategorie):", re.IGNORECASE)
# List markers in MediaWiki and in markdown, where `#` would be a heading.
LISTS = {"*": "*", "#": "1."}
BLANK_LINES = re.compile(r"\n{3,}")


def markdown_of(wikitext: str) -> str:
    """The readable part of an article as markdown. Raises UserError without the extra `search`."""
    # Removed before parsing: of a tag or table that is parsed, the text inside would remain.
    code = _parser().parse(TABLE.sub("", GONE.sub("", wikitext)))
    for link in code.filter_wikilinks():
        if NOT_PROSE.match(str(link)):
            code.remove(link)
    text = HEADING.sub(lambda match: f"{'#' * len(match[1])} {match[2]}", _plain(code))
    return BLANK_LINES.sub("\n\n", text).strip()


def _plain(code: Any) -> str:
    """The text without templates and tags, but with the markers of headings and lists."""
    parser, parts = _parser(), []
    for node in code.nodes:
        if isinstance(node, parser.nodes.Heading):
            signs = "=" * node.level
            parts.append(f"{signs} {node.title.strip_code().strip()} {signs}")
        elif isinstance(node, parser.nodes.Tag) and str(node.wiki_markup) in LISTS:
            parts.append(LISTS[str(node.wiki_markup)])
        else:
            parts.append(str(parser.wikicode.Wikicode([node]).strip_code(normalize=True, collapse=False)))
    return "".join(parts)


def _parser() -> Any:
    try:
        import mwparserfromhell
    except ImportError as error:
        raise UserError(f"reading a MediaWiki dump needs `mwparserfromhell`: {install_hint('search')}.") from error
    return mwparserfromhell
