"""Calls as a policy writes them, right and wrong."""

import asyncio

import pytest

from slimrl.tools.base import Frame, ToolError, purpose, schema_of, tool_of
from slimrl.tools.formats import make_call, parse_call


def search_pages(query: str) -> str:
    """Finds pages.

    And more.
    """
    return f"searched {query}"


def join(first: str, second: str = "b") -> str:
    return first + second


TOOLS = {"search_pages": search_pages, "join": join}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('search_pages("x")', "searched x"),
        ("\n search_pages( 'it\\'s' )\n", "searched it's"),
        ('search_pages(query="\u05e9 \U0001f98a")', "searched \u05e9 \U0001f98a"),
        ('join("a", second="c")', "ac"),
        ('join("a")', "ab"),
        ('search_pages("""two\nlines""")', "searched two\nlines"),
    ],
)
def test_a_call_is_made_with_its_arguments(text: str, result: str):
    called, said = asyncio.run(make_call(TOOLS, *parse_call(text), str))
    assert said == result and not called.error
    assert called.tool in TOOLS and "".join(called.arguments) in result.replace("ab", "a")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no call"),
        ('search_pages("x"', "this is no call"),
        ("search_pages(open('/etc/passwd').read())", "this is no call"),
        ("__import__('os').system('true')", "this is no call"),
        ("search_pages(*['x'])", "this is no call"),
        ("search_pages('x'); search_pages('y')", "this is no call"),
        ("(" * 5000, "this is no call"),
        ("search_pages('\x00')", "this is no call"),
        ('serch_pages("x")', "Did you mean `search_pages`?"),
        ("search_pages()", 'It is called as search_pages("query")'),
        ('search_pages("a", "b")', 'It is called as search_pages("query")'),
        ("search_pages(7)", "must be text in quotes, not 7"),
        ('join("a", second=None)', "`second` must be text"),
        ('search_pages("\\ud800")', "has half of a surrogate pair"),
    ],
)
def test_what_is_wrong_is_said_to_the_policy(text: str, said: str):
    try:
        called, answer = asyncio.run(make_call(TOOLS, *parse_call(text), str))
        assert answer == f"Error: {called.error}"
    except ToolError as error:
        answer = str(error)
    assert said in answer and len(answer) < 600


def test_arguments_are_plain_values():
    assert parse_call("f('a', -1, k=[1, 'b'])") == ("f", ["a", -1], {"k": [1, "b"]})


def test_a_tool_describes_itself():
    assert purpose(search_pages) == "finds pages."
    assert schema_of(join) == {
        "type": "function",
        "function": {
            "name": "join",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {"first": {"type": "string"}, "second": {"type": "string"}},
                "required": ["first"],
            },
        },
    }


def test_a_message_marks_what_may_be_cut():
    message = Frame("user", 7, "<a>", "</a>").message("text", " and more")
    assert message["content"] == "<a>text and more</a>"
    excerpt = message["excerpt"]
    assert message["content"][excerpt["begin"] : excerpt["end"]] == "text" and excerpt["max_tokens"] == 7


def add(number: int | None, names: set[str], place: tuple[int, int] = (0, 0)) -> str:
    return f"{number} {sorted(names)} {place}"


def test_a_function_gets_values_of_its_types() -> None:
    tools = {"add": tool_of(add)}
    calls = {
        'add(3, ["b", "a"])': "3 ['a', 'b'] (0, 0)",
        'add(None, ["b"], [1, 2])': "None ['b'] (1, 2)",
        'add("3", [])': "Error: add: `number` must be an integer, not '3'",
        "add(3, [], [1, 2, 3])": "Error: add: `place` must have a length of at most 2, not 3",
    }
    for call, said in calls.items():
        assert asyncio.run(make_call(tools, *parse_call(call), str))[1].startswith(said)
