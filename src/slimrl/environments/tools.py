"""Calls of tools that a policy writes as Python in tags, `<tool>search_pages("query")</tool>`, and what comes back.

What is wrong with a call is told to the policy as text, and the episode goes on. Calls are read, never evaluated.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from slimrl.errors import nearest

CALL = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)
SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s|\n")
Tool = Callable[..., Any]


class ToolError(Exception):
    """What the policy did wrong, in words for the policy."""


def run_call(text: str, tools: Mapping[str, Tool]) -> tuple[str, Any]:
    """The name and the result of one call, `name(arguments)`. Raises ToolError for whatever is wrong with it."""
    name, positional, keywords = parsed_call(text)
    if name not in tools:
        raise ToolError(f"there is no tool `{name}`.{nearest(name, tools)}")
    tool = tools[name]
    try:
        bound = inspect.signature(tool).bind(*positional, **keywords)
    except TypeError as error:
        raise ToolError(f"{name}: {error}. It is called as {usage(tool)}.") from error
    for parameter, value in bound.arguments.items():
        if not isinstance(value, str):
            raise ToolError(f"{name}: `{parameter}` must be text in quotes, not {value!r:.80}.")
    return name, tool(*bound.args, **bound.kwargs)


def parsed_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Name, positional arguments and keywords of a call whose arguments are plain values.

    >>> parsed_call('read_section(section_id="ampere:use")')
    ('read_section', [], {'section_id': 'ampere:use'})
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ValueError("no call")
        positional = [ast.literal_eval(argument) for argument in call.args]
        keywords = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
        if None in keywords:
            raise ValueError("`**` in a call")
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise ToolError(
            f'this is no call: {text.strip()!r:.200}. Write one, as in <tool>name("text")</tool>.'
        ) from None
    return call.func.id, positional, {str(name): value for name, value in keywords.items()}


def usage(tool: Tool) -> str:
    """How a tool is called, from its signature.

    >>> usage(usage)
    'usage("tool")'
    """
    parameters = ", ".join(f'"{name}"' for name in inspect.signature(tool).parameters)
    return f"{tool.__name__}({parameters})"


def bounded_text(text: str, max_chars: int) -> str:
    """At most `max_chars` of the text, cut behind a sentence where there is one, and a note of what is missing."""
    if len(text) <= max_chars:
        return text
    ends = [match.end() for match in SENTENCE_END.finditer(text, 0, max_chars)]
    end = ends[-1] if ends and ends[-1] > max_chars // 2 else max_chars
    return f"{text[:end].rstrip()}\n[{len(text) - end} more characters were left out]"
