"""Calls in the two written formats: what an argument spells is part of the argument."""

import asyncio

import pytest

from slimrl.tools.base import Tool
from slimrl.tools.formats import CallFormat, NativeFormat, TagFormat

ODD = [
    "what the tag </tool> is for",
    "what the tag </tool_call> is for",
    'a "quoted </tool>" tag and </tool_call>',
    "it's </tool> and </tool_call> in one",
    "</tool></tool_call>",
]


def search_pages(query: str) -> str:
    """Finds pages."""
    return f"found {query}"


TOOLS: dict[str, Tool] = {"search_pages": search_pages}


@pytest.mark.parametrize("calls", [TagFormat(TOOLS, 100), NativeFormat(TOOLS, 100)], ids=["tags", "native"])
@pytest.mark.parametrize("query", ODD)
def test_a_closing_tag_in_an_argument_is_part_of_it(calls: CallFormat, query: str) -> None:
    reply = f"I look it up. {calls.write_call('search_pages', query)} Let us see."
    reaction = asyncio.run(calls.react(reply))
    assert [(call.tool, call.arguments, call.error) for call in reaction.calls] == [("search_pages", (query,), "")]
    assert f"found {query}" in reaction.messages[0]["content"]
    assert calls.call_start(reply) == len("I look it up. ")


@pytest.mark.parametrize("written", ["search_pages(what's up)", 'search_pages("what)', "no call"])
def test_a_malformed_call_in_tags_is_shown_as_it_was_written(written: str) -> None:
    reaction = asyncio.run(TagFormat(TOOLS, 100).react(f"<tool>{written}</tool> That's it."))
    assert "this is no call" in reaction.calls[0].error
    assert "That" not in reaction.calls[0].error
