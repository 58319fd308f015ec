"""Defines formats in which a policy calls tools and reads results: in tags, or in the format of its chat template.

In a third format, the policy writes programs that call tools. The package slimrl-sandbox provides this format as an
entry point (`slimrl.formats`). Calls are parsed, never evaluated.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from slimrl.io.text import parse_json
from slimrl.models.chat.python_calls import PythonCall, parse_python_call, python_call
from slimrl.models.chat.thoughts import CLOSE, OPEN
from slimrl.models.chat.tool_calls import ToolCall, read_calls
from slimrl.plugins import FORMATS, load
from slimrl.tools.base import (
    CallAttempt,
    Frame,
    Tool,
    ToolError,
    TypedTool,
    arguments_of,
    by_name,
    purpose,
    schema_of,
    tool_of,
    usage,
)
from slimrl.types import Message

FormatName = Literal["tags", "native", "code"]
LOOK = "Look it up"
END = "When you know it, end with <answer>the answer</answer>."
CLOSING_TAG = "</tool>"
# A call extends to the first closing tag outside of quoted texts. If a quote is not closed, it extends to the first
# closing tag, quoted or not.
CALL = re.compile(r"""<tool>(?P<call>(?:[^"']|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')*?|.*?)</tool>""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reaction:
    """The messages that the policy reads next, and the calls in its reply."""

    messages: list[Message]
    calls: tuple[CallAttempt, ...]


class CallFormat(Protocol):
    """The format of tool calls in one episode. `close` is called once, after all other methods."""

    def opening(self, task: str, question: str, what: str = LOOK) -> list[Message]:
        """Return the opening messages: the task, the tools, how to write calls, and the question. `what` asks the
        policy to use the tools, such as "Look it up"."""

    def call_start(self, reply: str) -> int:
        """Return the position of the first call in a reply, even if it is malformed. Without a call, return the reply's
        length."""

    async def react(self, reply: str) -> Reaction:
        """Make the calls of a reply. A mistake becomes text in the messages, not an exception."""

    def write_call(self, tool: str, /, *positional: Any, **keywords: Any) -> str:
        """Return the text of a call, as the policy should write it."""

    async def close(self) -> None: ...


class TagFormat:
    """The format `<tool>search_pages("query")</tool>`, with one call per turn. If a reply has several calls, only the
    first is made."""

    def __init__(self, tools: Mapping[str, Tool], max_tokens: int) -> None:
        self._tools = tools
        self._frame = Frame("user", max_tokens, "<result>\n", "\n</result>")

    def opening(self, task: str, question: str, what: str = LOOK) -> list[Message]:
        lines = [
            f"{task} {what}, with one of these calls at a time:",
            *(f"<tool>{usage(tool)}</tool> {purpose(tool)}" for tool in self._tools.values()),
            END,
        ]
        return [{"role": "system", "content": "\n".join(lines)}, {"role": "user", "content": question}]

    def call_start(self, reply: str) -> int:
        call = _find_call(reply)
        return call.start() if call else len(reply)

    async def react(self, reply: str) -> Reaction:
        call = _find_call(reply)
        if call is None:
            error = "there was neither a call in <tool> tags nor an answer in <answer> tags."
            return Reaction([self._frame.message(f"Error: {error}")], (CallAttempt("", error=error),))
        try:
            name, positional, keywords = parse_call(call["call"])
        except ToolError as error:
            return Reaction([self._frame.message(f"Error: {error}")], (CallAttempt("", error=str(error)),))
        called, text = await make_call(self._tools, name, positional, keywords, str)
        return Reaction([self._frame.message(text)], (called,))

    def write_call(self, tool: str, /, *positional: Any, **keywords: Any) -> str:
        return f"<tool>{python_call(tool, positional, keywords)}</tool>"

    async def close(self) -> None:
        pass


class NativeFormat:
    """The format of chat templates such as Qwen's. The template shows the tools, a call is JSON in `<tool_call>` tags,
    and its result is a message of the role `tool`. All calls of a reply are made, and each has a result."""

    def __init__(self, tools: Mapping[str, Tool], max_tokens: int) -> None:
        self._tools = tools
        self._result = Frame("tool", max_tokens)
        self._remark = Frame("user", max_tokens)

    def opening(self, task: str, question: str, what: str = LOOK) -> list[Message]:
        tools = [schema_of(tool) for tool in self._tools.values()]
        return [
            {"role": "system", "content": f"{task} {what} with the tools.\n{END}", "tools": tools},
            {"role": "user", "content": question},
        ]

    def call_start(self, reply: str) -> int:
        place = reply.find(OPEN)
        return place if place >= 0 else len(reply)

    async def react(self, reply: str) -> Reaction:
        parts = read_calls(reply)
        answered = [await self._call(part) for part in parts if isinstance(part, ToolCall)]
        messages = [self._result.message(text) for _, text in answered]
        calls = [called for called, _ in answered]
        # An opening tag that is left in a text part is the start of a call that could not be parsed.
        if any(isinstance(part, str) and OPEN in part for part in parts):
            error = f'this is no call. Write each as {OPEN}\n{{"name": "tool", "arguments": {{...}}}}\n{CLOSE}'
            messages.append(self._result.message(f"Error: {error}"))
            calls.append(CallAttempt("", error=error))
        elif not calls:
            error = "there was neither a call of a tool nor an answer in <answer> tags."
            messages.append(self._remark.message(f"Error: {error}"))
            calls.append(CallAttempt("", error=error))
        return Reaction(messages, tuple(calls))

    def write_call(self, tool: str, /, *positional: Any, **keywords: Any) -> str:
        arguments = by_name(self._tools[tool], positional, keywords) if positional else keywords
        call = {"name": tool, "arguments": arguments}
        return f"{OPEN}\n{json.dumps(call, ensure_ascii=False)}\n{CLOSE}"

    async def close(self) -> None:
        pass

    async def _call(self, call: ToolCall) -> tuple[CallAttempt, str]:
        arguments = parse_json(call.arguments)
        if not isinstance(arguments, dict):
            error = f"the arguments of `{call.name:.100}` must be a JSON object, not {call.arguments:.80}"
            return CallAttempt(call.name, error=error), f"Error: {error}"
        return await make_call(self._tools, call.name, (), arguments, as_json)


async def make_call(
    tools: Mapping[str, Tool],
    name: str,
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    spelt: Callable[[Any], str],
) -> tuple[CallAttempt, str]:
    """Make a call. Return the attempt, and the text that the policy reads: the result, converted to text by `spelt`, or
    the mistake."""
    arguments: tuple[str, ...] = ()
    try:
        bound = arguments_of(tools, name, positional, keywords)
        arguments = tuple(map(as_json, bound.values()))
        result = tools[name](**bound)
        return CallAttempt(name, arguments), spelt(await result if inspect.isawaitable(result) else result)
    except ToolError as error:
        return CallAttempt(name, arguments, str(error)), f"Error: {error}"


def _find_call(reply: str) -> re.Match[str] | None:
    """Return the first call in tags; None without a call. The text after the last closing tag is not searched: the
    search would read that text once for each opening tag, and a policy may write thousands of tags."""
    return CALL.search(reply, 0, reply.rfind(CLOSING_TAG) + len(CLOSING_TAG))


def as_json(result: Any) -> str:
    """Return a text unchanged, and anything else as JSON."""
    # The arguments of a native call are JSON too, so that an id with any characters can be copied from a result
    # unchanged. In the other formats both arguments and results are Python literals.
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def parse_call(text: str) -> PythonCall:
    """Return the name, positional arguments and keywords of a Python call with literal arguments. Raise ToolError for
    any other text.

    >>> parse_call('read_section(section_id="ampere:use")')
    ('read_section', [], {'section_id': 'ampere:use'})
    """
    try:
        return parse_python_call(text)
    except ValueError:
        raise ToolError(
            f'this is no call: {text.strip()!r:.200}. Write one, as in <tool>name("text")</tool>.'
        ) from None


class ProgramFormat(Protocol):
    """The format in which a policy writes programs that call tools. An entry point of `slimrl.formats` provides it."""

    def check(self, sandbox: Mapping[str, Any]) -> None:
        """Raise UserError if the settings of the sandbox cannot be used."""

    def make(self, tools: Mapping[str, Tool], max_tokens: int, sandbox: Mapping[str, Any]) -> Callable[[], CallFormat]:
        """Return a function that creates the format of each episode."""


def check_sandbox(sandbox: Mapping[str, Any]) -> None:
    """Raise UserError if the settings of a sandbox cannot be used."""
    if sandbox:
        _programs().check(sandbox)


def formats_of(
    name: FormatName, tools: Mapping[str, Tool], max_tokens: int, sandbox: Mapping[str, Any]
) -> Callable[[], CallFormat]:
    """Return a function that creates the call format of each episode. With `code`, all episodes share the sandbox that
    `sandbox` describes. A tool that is a function becomes a `TypedTool`, unless all its
    parameters are texts. Raise UserError for invalid settings of the sandbox, or type hints without a schema."""
    tools = {called: _with_types(tool) for called, tool in tools.items()}
    if name == "code":
        return _programs().make(tools, max_tokens, sandbox)
    one = NativeFormat if name == "native" else TagFormat
    return lambda: one(tools, max_tokens)


def _with_types(tool: Tool) -> Tool:
    """Convert a function with hints other than `str` to a TypedTool; any other tool is unchanged."""
    if isinstance(tool, TypedTool) or not inspect.isroutine(tool):
        return tool
    parameters = inspect.signature(tool).parameters.values()
    takes_texts = all(one.annotation in (one.empty, str, "str") for one in parameters)
    return tool if takes_texts else tool_of(tool)


def _programs() -> ProgramFormat:
    found: ProgramFormat = load(FORMATS, "code", "the call format")
    return found
