"""Every entry of the log says when it was made and what came out, and the index leads to each of them."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

LOG = Path(__file__).parents[2] / "docs" / "log"
PAGES = sorted(path for path in LOG.glob("*.md") if path.name != "README.md")
INDEX = (LOG / "README.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^(\d{4}-\d{2}-\d{2}): (\S.*)$")
VERDICT = re.compile(r"^\*\*Verdict: (helped|did not help|mixed|measured)\.\*\* \S")
LINE = re.compile(r"^\| ([\d-]+) \| ([a-z ]+) \| \[(.+)\]\((.+)\) \|$", re.MULTILINE)


def entries(page: Path) -> list[tuple[str, str]]:
    """Return every entry as its heading and the text below it."""
    _, *parts = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [(heading, body.strip()) for heading, _, body in (part.partition("\n") for part in parts)]


def verdict(body: str) -> str:
    """Return the mark of an entry's first line, or nothing where it has none."""
    match = VERDICT.match(body)
    return match[1] if match else ""


def anchors(headings: Iterable[str]) -> list[str]:
    """Return what GitHub makes of headings that differ: small letters, no punctuation, a hyphen for each space."""
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_entry_has_a_date_and_then_a_verdict(page: Path) -> None:
    found = entries(page)
    assert found
    assert [heading for heading, _ in found if not HEADING.match(heading)] == []
    assert [heading for heading, body in found if not verdict(body)] == []


def test_the_index_lists_every_entry_once_with_its_date_and_verdict() -> None:
    expected = [
        (heading[:10], verdict(body), heading[12:], f"{page.name}#{anchor}")
        for page in PAGES
        for (heading, body), anchor in zip(entries(page), anchors(heading for heading, _ in entries(page)), strict=True)
    ]
    assert sorted(LINE.findall(INDEX)) == sorted(expected)
