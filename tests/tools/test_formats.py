"""Calls in the two written formats: what an argument spells is part of the argument."""

import asyncio

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.tools.base import Tool, ToolError, TypedTool, tool_of
from slimrl.tools.formats import CallFormat, NativeFormat, TagFormat, formats_of

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


def multiply(a: int, b: int = 2) -> int:
    """Multiplies."""
    if b == 13:
        raise KeyError("unlucky")
    if b == 14:
        raise RolloutError("tool_server_died", "gone")
    return a * b


def repeat(text: str, times="2"):
    raise KeyError(text)


PARAMETERS = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
MULTIPLY = TypedTool("multiply", "Multiplies.", PARAMETERS, multiply)
WRITTEN = ("tags", "native")


def answer_of(calls: CallFormat, reply: str) -> str:
    (message,) = asyncio.run(calls.react(reply)).messages
    return message["content"].removeprefix("<result>\n").removesuffix("\n</result>")


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("tool", [MULTIPLY, multiply], ids=["typed", "function"])
def test_a_written_call_is_made_with_all_its_arguments(form: str, tool: Tool) -> None:
    calls = formats_of(form, {"multiply": tool}, 50, {})()
    assert answer_of(calls, calls.write_call("multiply", 3, 4)) == "12"
    assert answer_of(calls, calls.write_call("multiply", 3, b=4)) == "12"


@pytest.mark.parametrize("tool", [MULTIPLY, multiply], ids=["typed", "function"])
def test_a_native_call_that_would_lose_an_argument_is_not_written(tool: Tool) -> None:
    calls = formats_of("native", {"multiply": tool, "repeat": repeat}, 50, {})()
    for positional, keywords in (((3, 4, 5), {}), ((3,), {"a": 3})):
        with pytest.raises(ToolError, match=r"(not 3|given twice)\. It is called as multiply\(a: integer, b"):
            calls.write_call("multiply", *positional, **keywords)
    with pytest.raises(ToolError, match="it takes 2 arguments, not 3"):
        calls.write_call("repeat", "a", "b", "c")


def test_hints_of_a_plain_function_are_read() -> None:
    calls = formats_of("tags", {"multiply": multiply}, 50, {})()
    assert "<tool>multiply(a: integer, b: integer = ...)</tool> multiplies." in calls.opening("", "")[0]["content"]
    assert "`a` must be an integer, not '3'" in answer_of(calls, '<tool>multiply("3", 4)</tool>')
    assert answer_of(calls, "<tool>multiply(3, 13)</tool>") == "Error: multiply: KeyError: 'unlucky'"
    with pytest.raises(RolloutError):
        answer_of(calls, "<tool>multiply(3, 14)</tool>")
    (tool,) = formats_of("native", {"multiply": multiply}, 50, {})().opening("", "")[0]["tools"]
    assert tool["function"]["parameters"]["properties"] == PARAMETERS["properties"]


@pytest.mark.parametrize("form", WRITTEN)
def test_a_function_of_texts_alone_stays_as_it_is(form: str) -> None:
    tools: dict[str, Tool] = {"search_pages": search_pages, "repeat": repeat}
    as_they_are = {"tags": TagFormat, "native": NativeFormat}[form](tools, 50)
    calls = formats_of(form, tools, 50, {})()
    assert calls.opening("Do it.", "How?") == as_they_are.opening("Do it.", "How?")
    assert "`times` must be text in quotes" in answer_of(calls, calls.write_call("repeat", "a", times=3))
    with pytest.raises(KeyError):
        answer_of(calls, calls.write_call("repeat", "a"))


def test_hints_that_no_call_can_hold_are_refused() -> None:
    def odd(a: pytest.MonkeyPatch) -> None: ...

    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def many(*numbers: int) -> None: ...

    for tool, message in ((odd, "`a` has the type"), (unknown, "cannot be read: NameError"), (many, "needs a name")):
        with pytest.raises(UserError, match=f"tool `{tool.__name__}`.*{message}"):
            formats_of("tags", {"it": tool}, 50, {})


def test_a_function_of_texts_may_be_given_types_too() -> None:
    with pytest.raises(ToolError, match="repeat: KeyError: 'a'"):
        asyncio.run(tool_of(repeat)(text="a"))


def now() -> str:
    """Returns the time."""
    return "noon"


def test_an_argument_for_a_tool_without_parameters_is_an_error_that_the_policy_reads() -> None:
    calls = formats_of("tags", {"now": now}, 50, {})()
    assert answer_of(calls, "<tool>now()</tool>") == "noon"
    assert "there is no parameter `zone`" in answer_of(calls, '<tool>now(zone="UTC")</tool>')
