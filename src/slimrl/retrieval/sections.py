"""Sections of a markdown page, and the ids under which the tools name them.

A section begins at a heading, any line that starts with `#` outside a code fence, and ends before the next one, of any
level. Its id is `page_id:name`, the name in lower case with `_` for spaces; the whole page is `page_id:full`. So far as
in the verifiers environment `wiki-search`; but there a repeated heading cannot be reached, and one called `Full`
neither: here they get numbers, `name_2`.
"""

import re
from collections.abc import Container
from dataclasses import dataclass

from slimrl.retrieval.pages import Page

FULL, FULL_NAME = "full", "Full Page"
FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading's text, its id within the page, and the characters `begin..end` of the content, heading included."""

    name: str
    key: str
    begin: int
    end: int


def sections_of(content: str) -> list[Section]:
    """All sections in order; none for a page without headings.

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
            if f"{natural}_{number}" not in own:  # which a heading of that very name has by right
                key = f"{natural}_{number}"
        taken.add(key)
        keys.append(key)
    ends = [*(begin for _, begin in headings), len(content)][1:]
    return [Section(name, key, begin, end) for (name, begin), key, end in zip(headings, keys, ends, strict=True)]


def key_of(name: str) -> str:
    """A heading's text as the second half of a section id."""
    return name.strip().lower().replace(" ", "_")


def list_sections(page: Page) -> list[dict[str, str]]:
    """What `view_sections` returns: the ids and names of the sections, or the whole page if it has none."""
    found = sections_of(page.content)
    if not found:
        return [{"section_id": f"{page.id}:{FULL}", "section_name": FULL_NAME}]
    return [{"section_id": f"{page.id}:{section.key}", "section_name": section.name} for section in found]


def section_text(page: Page, key: str) -> str | None:
    """The text under a section's key, or None if the page has no such section."""
    if key == FULL:
        return page.content
    for section in sections_of(page.content):
        if section.key == key:
            return page.content[section.begin : section.end].rstrip("\n")
    return None


def split_section_id(section_id: str, pages: Container[str]) -> tuple[str, str] | None:
    """(page id, key), split at the longest page id that is known: page ids may contain colons, and so may headings.
    None if no part before a colon is a page.

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
    """(text, first character) of every heading."""
    found, fence, place = [], "", 0
    for line in content.split("\n"):
        marker = FENCE.match(line)
        if fence:
            # As in CommonMark, a fence is closed by its own character, at least as often, and nothing behind it.
            if marker and marker[1].startswith(fence) and not marker[2].strip():
                fence = ""
        elif marker and not (marker[1][0] == "`" and "`" in marker[2]):
            fence = marker[1]
        elif line.startswith("#"):
            found.append((line.lstrip("#").strip(), place))
        place += len(line) + 1
    return found
