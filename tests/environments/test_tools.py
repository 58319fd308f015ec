"""Calls as a policy writes them, right and wrong."""

import pytest

from slimrl.environments.tools import ToolError, bounded_text, parsed_call, run_call


def search_pages(query: str) -> str:
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
    assert run_call(text, TOOLS)[1] == result


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no call"),
        ("search_pages", "this is no call"),
        ("search pages('x')", "this is no call"),
        ('search_pages("x"', "this is no call"),
        ("search_pages(x)", "this is no call"),
        ("search_pages(open('/etc/passwd').read())", "this is no call"),
        ("__import__('os').system('true')", "this is no call"),
        ("search_pages(*['x'])", "this is no call"),
        ("search_pages(**{'query': 'x'})", "this is no call"),
        ("search_pages('x'); search_pages('y')", "this is no call"),
        ("(" * 5000, "this is no call"),
        ("search_pages('\x00')", "this is no call"),
        ('serch_pages("x")', "Did you mean `search_pages`?"),
        ("search_pages()", 'It is called as search_pages("query")'),
        ('search_pages("a", "b")', 'It is called as search_pages("query")'),
        ('search_pages(page="a")', 'It is called as search_pages("query")'),
        ("search_pages(7)", "must be text in quotes, not 7"),
        ('join("a", second=None)', "`second` must be text"),
        ("search_pages(f'x')", "this is no call"),
        ("lambda: 0", "this is no call"),
    ],
)
def test_what_is_wrong_is_said_to_the_policy(text: str, said: str):
    with pytest.raises(ToolError) as raised:
        run_call(text, TOOLS)
    assert said in str(raised.value) and len(str(raised.value)) < 600


def test_arguments_are_plain_values():
    assert parsed_call("f('a', -1, k=[1, 'b'])") == ("f", ["a", -1], {"k": [1, "b"]})


def test_long_results_are_cut_behind_a_sentence():
    text = "One two. Three four! " * 50
    cut = bounded_text(text, 100)
    kept, note = cut.rsplit("\n", 1)
    assert text.startswith(kept) and kept.endswith(("two.", "four!")) and 50 < len(kept) <= 100
    assert note == f"[{len(text) - len(kept) - 1} more characters were left out]"
    assert bounded_text("x" * 300, 100).startswith("x" * 100 + "\n[200 more")
    assert bounded_text(text, len(text)) == text
