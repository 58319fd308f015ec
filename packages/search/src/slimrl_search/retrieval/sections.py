"""Splits a markdown page into sections, and gives them the ids that the tools use.

A heading is any line that starts with `#` outside a code fence. A section starts at a heading and ends before the next
heading of any level. Its id is `page_id:name`, with the name in lower case and `_` for spaces. The id `page_id:full` is
the whole page. The verifiers environment `wiki-search` uses the same ids, but it cannot read a section whose heading is
repeated or called `Full`. Here such headings get numbers, as in `name_2`.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

from slimrl_search.retrieval.pages import Page

FULL, FULL_NAME = "full", "Full Page"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


@dataclass(frozen=True, slots=True)
class Section:
    """A section: the text of its heading, its key within the page, and its characters `begin..end`, including the
    heading."""

    name: str
    key: str
    begin: int
    end: int


def sections_of(content: str) -> list[Section]:
    """Return the sections of a page in order; an empty list for a page without headings.

    >>> [s.key for s in sections_of("# Ampere\\nA unit.\\n## Use\\n...\\n## Use\\n...")]
    ['ampere', 'use', 'use_2']
    """
    headings = _headings(content)
    own = {key_of(name) for name, _ in headings}
    taken, numbers, keys = {FULL}, dict.fromkeys(own, 2), []
    for name, _ in headings:
        key = natural = key_of(name)
        while key in taken:
            number = numbers[natural]
            numbers[natural] += 1
            # Skip a number that gives the name of another heading: the heading "Use 2" always has the key `use_2`.
            if f"{natural}_{number}" not in own:
                key = f"{natural}_{number}"
        taken.add(key)
        keys.append(key)
    ends = [*(begin for _, begin in headings), len(content)][1:]
    return [Section(name, key, begin, end) for (name, begin), key, end in zip(headings, keys, ends, strict=True)]


def key_of(name: str) -> str:
    """Return the key of a heading: its text in lower case with `_` for spaces."""
    return name.strip().lower().replace(" ", "_")


def list_sections(page: Page) -> list[dict[str, str]]:
    """Return the result of the tool `view_sections`: the ids and names of the sections. For a page without sections,
    the result has one entry, the whole page."""
    found = sections_of(page.content)
    if not found:
        return [{"section_id": f"{page.id}:{FULL}", "section_name": FULL_NAME}]
    return [{"section_id": f"{page.id}:{section.key}", "section_name": section.name} for section in found]


def section_text(page: Page, key: str) -> str | None:
    """Return the text under a section's key, or None if the page has no such section."""
    if key == FULL:
        return page.content
    for section in sections_of(page.content):
        if section.key == key:
            return page.content[section.begin : section.end].rstrip("\n")
    return None


def split_section_id(section_id: str, pages: Container[str]) -> tuple[str, str] | None:
    """Split a section id into (page id, key). Return None if no part before a colon is the id of a page.

    Page ids and headings may both contain colons, so the longest page id in `pages` is taken.

    >>> split_section_id("2001:_a_space_odyssey:plot", {"2001", "2001:_a_space_odyssey"})
    ('2001:_a_space_odyssey', 'plot')
    """
    place = section_id.rfind(":")
    while place >= 0:
        if section_id[:place] in pages:
            return section_id[:place], section_id[place + 1 :]
        place = section_id.rfind(":", 0, place)
    return None


def _headings(content: str) -> list[tuple[str, int]]:
    """Return each heading's text and the position of its first character."""
    found, fence, place = [], "", 0
    for line in content.split("\n"):
        marker = FENCE.match(line)
        if fence:
            # As in CommonMark: the closing fence has the same character, at least as often, and nothing after it.
            if marker and marker[1].startswith(fence) and not marker[2].strip():
                fence = ""
        # If the line has more backticks later, the first ones are inline code and not a fence.
        elif marker and not (marker[1][0] == "`" and "`" in marker[2]):
            fence = marker[1]
        elif line.startswith("#"):
            found.append((line.lstrip("#").strip(), place))
        place += len(line) + 1
    return found
