"""Calls of tools as a policy writes them, in the two written formats: right and wrong."""

import asyncio

import pytest

from slimrl.errors import RolloutError, UserError
from slimrl.tools.base import Frame, Tool, ToolError, TypedTool, find_mistake, purpose, schema_of, tool_of
from slimrl.tools.formats import CallFormat, NativeFormat, TagFormat, formats_of, make_call, parse_call


def search_pages(query: str) -> str:
    """Finds pages.

    And more.
    """
    return f"found {query}"


def join(first: str, second: str = "b") -> str:
    return first + second


def multiply(a: int, b: int = 2) -> int:
    """Multiplies."""
    if b == 13:
        raise KeyError("unlucky")
    if b == 14:
        raise RolloutError("tool_server_died", "gone")
    return a * b


def repeat(text: str, times="2"):
    raise KeyError(text)


def now() -> str:
    """Returns the time."""
    return "noon"


TOOLS: dict[str, Tool] = {"search_pages": search_pages, "join": join}
PARAMETERS = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
MULTIPLY = TypedTool("multiply", "Multiplies.", PARAMETERS, multiply)
WRITTEN = {"tags": TagFormat, "native": NativeFormat}
BOTH = pytest.mark.parametrize("tool", [MULTIPLY, multiply], ids=["typed", "function"])


def answer_of(calls: CallFormat, reply: str) -> str:
    (message,) = asyncio.run(calls.react(reply)).messages
    return message["content"].removeprefix("<result>\n").removesuffix("\n</result>")


NO_CALL = "this is no call"
USAGE = 'It is called as search_pages("query")'
CALLS = {
    'search_pages("x")': "found x",
    "\n search_pages( 'it\\'s' )\n": "found it's",
    'search_pages(query="\u05e9 \U0001f98a")': "found \u05e9 \U0001f98a",
    'join("a", second="c")': "ac",
    'join("a")': "ab",
    'search_pages("""two\nlines""")': "found two\nlines",
    **dict.fromkeys(["", "search_pages", "search pages('x')", 'search_pages("x"', "search_pages(x)"], NO_CALL),
    **dict.fromkeys(["search_pages(open('/etc/passwd').read())", "__import__('os').system('true')"], NO_CALL),
    **dict.fromkeys(["search_pages(*['x'])", "search_pages(**{'query': 'x'})", "search_pages('\x00')"], NO_CALL),
    **dict.fromkeys(["search_pages('x'); search_pages('y')", "(" * 5000, "search_pages(f'x')", "lambda: 0"], NO_CALL),
    **dict.fromkeys(["search_pages()", 'search_pages("a", "b")', 'search_pages(page="a")'], USAGE),
    'serch_pages("x")': "Did you mean `search_pages`?",
    "search_pages(7)": "must be text in quotes, not 7",
    'join("a", second=None)': "`second` must be text",
    'search_pages("\\ud800")': "has half of a surrogate pair",
}


@pytest.mark.parametrize("text", CALLS)
def test_a_call_is_made_with_its_arguments_or_its_mistake_is_said_to_the_policy(text: str):
    try:
        called, answer = asyncio.run(make_call(TOOLS, *parse_call(text), str))
        assert called.error or (answer == CALLS[text] and called.tool in TOOLS)
        assert not called.error or answer == f"Error: {called.error}"
    except ToolError as error:
        answer = str(error)
    assert CALLS[text] in answer and len(answer) < 600


def test_arguments_are_plain_values():
    assert parse_call("f('a', -1, k=[1, 'b'])") == ("f", ["a", -1], {"k": [1, "b"]})


def test_a_tool_describes_itself_and_a_message_marks_the_part_that_may_be_cut():
    assert purpose(search_pages) == "finds pages."
    properties = {"first": {"type": "string"}, "second": {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": ["first"]}
    assert schema_of(join) == {
        "type": "function",
        "function": {"name": "join", "description": "", "parameters": parameters},
    }
    message = Frame("user", 7, "<a>", "</a>").message("text", " and more")
    assert message["content"] == "<a>text and more</a>"
    excerpt = message["excerpt"]
    assert message["content"][excerpt["begin"] : excerpt["end"]] == "text" and excerpt["max_tokens"] == 7


MISTAKES = [
    ({"type": "integer"}, True, "`a`: True is not of type 'integer'"),
    ({"type": "array", "items": {"type": "integer"}}, [1, "x"], "`a[1]`: 'x' is not of type 'integer'"),
    ({"$ref": "#/$defs/up"}, "left", "`a`: 'left' is not one of ['up', 'down']"),
    ({"minimum": 5}, 3, "`a`: 3 is less than the minimum of 5"),
    # The schema is not valid, or needs a download, or searches for a pattern: the tool itself must check the value.
    *(({kind: value}, 1, "") for kind, value in (("$ref", "#/nowhere"), ("$ref", "http://127.0.0.1:9/x"))),
    *(({kind: value}, "x", "") for kind, value in (("type", "word"), ("pattern", "["), ("enum", 3), ("anyOf", 3))),
]


@pytest.mark.parametrize(("schema", "value", "mistake"), MISTAKES, ids=lambda one: f"{one!r:.40}")
def test_a_value_is_compared_with_the_schema_of_a_tool(schema: dict[str, object], value: object, mistake: str) -> None:
    whole = {"properties": {"a": schema}, "$defs": {"up": {"enum": ["up", "down"]}}}
    assert find_mistake({"a": value}, whole) == mistake


ODD = [
    "what the tag </tool> is for",
    "what the tag </tool_call> is for",
    'a "quoted </tool>" tag and </tool_call>',
    "it's </tool> and </tool_call> in one",
    "</tool></tool_call>",
]


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("query", ODD)
def test_a_closing_tag_in_an_argument_is_part_of_it(form: str, query: str) -> None:
    calls = WRITTEN[form](TOOLS, 100)
    reply = f"I look it up. {calls.write_call('search_pages', query)} Let us see."
    reaction = asyncio.run(calls.react(reply))
    assert [(call.tool, call.arguments, call.error) for call in reaction.calls] == [("search_pages", (query,), "")]
    assert f"found {query}" in reaction.messages[0]["content"]
    assert calls.call_start(reply) == len("I look it up. ")


@pytest.mark.parametrize("written", ["search_pages(what's up)", 'search_pages("what)', "no call"])
def test_a_malformed_call_in_tags_is_shown_as_it_was_written(written: str) -> None:
    error = asyncio.run(TagFormat(TOOLS, 100).react(f"<tool>{written}</tool> That's it.")).calls[0].error
    assert NO_CALL in error and "That" not in error


@pytest.mark.parametrize("form", WRITTEN)
@BOTH
def test_a_written_call_is_made_with_all_its_arguments(form: str, tool: Tool) -> None:
    calls = formats_of(form, {"multiply": tool}, 50, {})()
    assert answer_of(calls, calls.write_call("multiply", 3, 4)) == "12"
    assert answer_of(calls, calls.write_call("multiply", 3, b=4)) == "12"


@BOTH
def test_a_native_call_that_would_lose_an_argument_is_not_written(tool: Tool) -> None:
    calls = formats_of("native", {"multiply": tool, "repeat": repeat}, 50, {})()
    for positional, keywords in (((3, 4, 5), {}), ((3,), {"a": 3})):
        with pytest.raises(ToolError, match=r"(not 3|given twice)\. It is called as multiply\(a: integer, b"):
            calls.write_call("multiply", *positional, **keywords)
    with pytest.raises(ToolError, match="it takes 2 arguments, not 3"):
        calls.write_call("repeat", "a", "b", "c")


def test_hints_of_a_plain_function_are_read() -> None:
    calls = formats_of("tags", {"multiply": multiply, "now": now}, 50, {})()
    assert "<tool>multiply(a: integer, b: integer = ...)</tool> multiplies." in calls.opening("", "")[0]["content"]
    assert "`a`: '3' is not of type 'integer'" in answer_of(calls, '<tool>multiply("3", 4)</tool>')
    assert answer_of(calls, "<tool>multiply(3, 13)</tool>") == "Error: multiply: KeyError: 'unlucky'"
    with pytest.raises(RolloutError):
        answer_of(calls, "<tool>multiply(3, 14)</tool>")
    (tool, _) = formats_of("native", {"multiply": multiply, "now": now}, 50, {})().opening("", "")[0]["tools"]
    assert tool["function"]["parameters"]["properties"] == PARAMETERS["properties"]
    assert answer_of(calls, "<tool>now()</tool>") == "noon"
    assert "there is no parameter `zone`" in answer_of(calls, '<tool>now(zone="UTC")</tool>')


@pytest.mark.parametrize("form", WRITTEN)
def test_a_function_of_texts_alone_stays_as_it_is(form: str) -> None:
    tools: dict[str, Tool] = {"search_pages": search_pages, "repeat": repeat}
    calls = formats_of(form, tools, 50, {})()
    assert calls.opening("Do it.", "How?") == WRITTEN[form](tools, 50).opening("Do it.", "How?")
    assert "`times` must be text in quotes" in answer_of(calls, calls.write_call("repeat", "a", times=3))
    with pytest.raises(KeyError):
        answer_of(calls, calls.write_call("repeat", "a"))
    with pytest.raises(ToolError, match="repeat: KeyError: 'a'"):  # unless it is given types
        asyncio.run(tool_of(repeat)(text="a"))


def test_values_have_the_types_of_the_hints_and_others_are_refused() -> None:
    def sizes(a: set[int], b: int | None = None) -> str:
        return f"{a!r} {b}"

    def odd(a: ToolError) -> None: ...

    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def many(*numbers: int) -> None: ...

    calls = formats_of("tags", {"sizes": sizes}, 50, {})()
    assert answer_of(calls, "<tool>sizes([2], b=None)</tool>") == "{2} None"
    assert "is not valid" in answer_of(calls, "<tool>sizes([2], b='3')</tool>")
    for tool, message in ((odd, "`a` has the type"), (unknown, "cannot be read: NameError"), (many, "needs a name")):
        with pytest.raises(UserError, match=f"tool `{tool.__name__}`.*{message}"):
            formats_of("tags", {"it": tool}, 50, {})
