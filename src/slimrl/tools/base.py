"""Tools that a policy may call, and their results. Knows nothing of how a call is written (`tools/formats.py`).

A mistake in a call becomes text that the policy reads, and the episode goes on.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.errors import nearest
from slimrl.io.text import is_writable
from slimrl.types import Message

Tool = Callable[..., Any]


class ToolError(Exception):
    """A mistake of the policy's in a call. Its text is for the policy to read."""


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One attempt of the policy at a call.

    `arguments` are texts in the order of the tool's parameters; `tool` is empty where the policy named none; `error` is
    the mistake, or empty.

    >>> CallAttempt("search_pages", ("ampere",)).error
    ''
    """

    tool: str
    arguments: tuple[str, ...] = ()
    error: str = ""


def arguments_of(
    tools: Mapping[str, Tool], name: str, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[str, ...]:
    """The arguments of a call in the order of the tool's parameters. Raises ToolError for a tool that does not exist,
    for arguments that it does not take, and for those that are no text."""
    if name not in tools:
        raise ToolError(f"there is no tool `{name:.100}`.{nearest(name, tools)}")
    tool = tools[name]
    try:
        bound = inspect.signature(tool).bind(*positional, **keywords)
    except TypeError as error:
        raise ToolError(f"{name}: {error!s:.200}. It is called as {usage(tool)}.") from error
    # The call came as a model wrote it: numbers, lists and broken text pass `bind`, and tools take whole texts alone.
    for parameter, value in bound.arguments.items():
        if not isinstance(value, str):
            raise ToolError(f"{name}: `{parameter}` must be text in quotes, not {value!r:.80}.")
        if not is_writable(value):
            raise ToolError(f"{name}: `{parameter}` has half of a surrogate pair, which is no text: {value!r:.80}.")
    return tuple(bound.arguments.values())


def usage(tool: Tool) -> str:
    """A call of the tool with its parameters' names, from its signature.

    >>> usage(usage)
    'usage("tool")'
    """
    parameters = ", ".join(f'"{name}"' for name in inspect.signature(tool).parameters)
    return f"{tool.__name__}({parameters})"


def purpose(tool: Tool) -> str:
    """The first line of a tool's docstring with a small initial, to stand behind the tool's name.

    >>> purpose(purpose)
    "the first line of a tool's docstring with a small initial, to stand behind the tool's name."
    """
    line = (inspect.getdoc(tool) or "").partition("\n")[0]
    return line[:1].lower() + line[1:]


def schema_of(tool: Tool) -> dict[str, Any]:
    """The tool's JSON schema, as chat templates and OpenAI's API take it; all parameters are strings."""
    parameters = inspect.signature(tool).parameters
    required = [name for name, parameter in parameters.items() if parameter.default is inspect.Parameter.empty]
    return {
        "type": "function",
        "function": {
            "name": tool.__name__,
            "description": inspect.getdoc(tool) or "",
            "parameters": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in parameters},
                "required": required,
            },
        },
    }


@dataclass(frozen=True, slots=True)
class Frame:
    """The text around a tool's result, and the limit on how many tokens of the result the policy reads."""

    role: Literal["user", "tool"]
    max_tokens: int
    before: str = ""
    after: str = ""

    def message(self, text: str, appendix: str = "") -> Message:
        """A message with the text, which is cut to `max_tokens` before the policy reads it, and the appendix, which is
        not."""
        # Positions are of characters: only the reader of the message has the policy's tokenizer, and cuts there.
        begin, end = len(self.before), len(self.before) + len(text)
        return {
            "role": self.role,
            "content": f"{self.before}{text}{appendix}{self.after}",
            "excerpt": {"begin": begin, "end": end, "max_tokens": self.max_tokens},
        }
