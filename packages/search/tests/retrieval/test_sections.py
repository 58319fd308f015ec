"""Sections of awkward pages, and the ids that name them."""

import pytest

from slimrl_search.retrieval.pages import Page
from slimrl_search.retrieval.sections import list_sections, section_text, sections_of, split_section_id

PAGE = Page(
    "ampere", "Ampere", "# Ampere\n\nA unit.\n\n## Use\n\nIn wires.\n\n### In the home\nA plug.\n## Use\nAgain.\n"
)


def keys(content: str) -> list[str]:
    return [section.key for section in sections_of(content)]


def test_a_section_ends_before_the_next_heading_of_any_level():
    assert keys(PAGE.content) == ["ampere", "use", "in_the_home", "use_2"]
    assert section_text(PAGE, "use") == "## Use\n\nIn wires."
    assert section_text(PAGE, "use_2") == "## Use\nAgain."
    assert section_text(PAGE, "full") == PAGE.content
    assert section_text(PAGE, "Use") is None and section_text(PAGE, "use_3") is None
    assert list_sections(PAGE)[2] == {"section_id": "ampere:in_the_home", "section_name": "In the home"}


@pytest.mark.parametrize(
    "content", ["", "no heading", " # indented", "```\n# in a fence\n```\n", "~~~~\n# a\n~~~\n# b\n"]
)
def test_a_page_without_headings_is_one_section(content: str):
    page = Page("p", "P", content)
    assert list_sections(page) == [{"section_id": "p:full", "section_name": "Full Page"}]
    assert section_text(page, "full") == content


def test_fences_hide_headings_until_they_are_closed():
    assert keys("# a\n```python\n# b\n````\n# c\n") == ["a", "c"]  # more backticks close
    assert keys("# a\n````\n# b\n```\n# c\n") == ["a"]  # fewer do not
    assert keys("# a\n```\n# b\n~~~\n# c\n") == ["a"]  # nor do tildes
    assert keys("# a\n   ```\n# b\n   ```\n# c") == ["a", "c"]
    assert keys("# a\n    ```\n# b\n") == ["a", "b"]  # four spaces make it text
    assert keys("# a\n``` not a fence `\n# b\n") == ["a", "b"]


def test_headings_without_space_without_text_and_with_other_line_ends():
    assert keys("#tag\n##\n## \r\n# R\r\n") == ["tag", "", "_2", "r"]
    assert section_text(Page("p", "P", "#\ntext"), "") == "#\ntext"
    assert keys("# a\u2028# b") == ["a\u2028#_b"]


def test_repeated_headings_are_numbered_without_taking_the_id_of_another():
    assert keys("# A\n# A\n# A 2\n# a\n") == ["a", "a_3", "a_2", "a_4"]
    assert keys("# Full\n# Full\n") == ["full_2", "full_3"]
    many = keys("# x\n" * 3000)
    assert len(set(many)) == 3000 and many[-1] == "x_3000"


def test_every_character_after_the_first_heading_is_in_one_section():
    content = "lead\n# a\nx\n\n## \u05e9\u05dc\u05d5\u05dd \U0001f98a\ny\n# a\n"
    found = sections_of(content)
    assert content[found[0].begin :] == "".join(content[section.begin : section.end] for section in found)
    assert found[1].key == "\u05e9\u05dc\u05d5\u05dd_\U0001f98a"


def test_a_section_id_is_split_at_the_longest_known_page_id():
    pages = {"2001", "2001:_a_space_odyssey", "a:b"}
    assert split_section_id("2001:_a_space_odyssey:plot", pages) == ("2001:_a_space_odyssey", "plot")
    assert split_section_id("2001:1:30", pages) == ("2001", "1:30")  # a colon of the heading's
    assert split_section_id("a:b:c:d", pages) == ("a:b", "c:d")
    assert split_section_id("a:b", pages) is None and split_section_id("2001", pages) is None
    assert split_section_id("2001:", pages) == ("2001", "")
