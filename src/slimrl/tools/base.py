"""Defines the tools that a policy may call. The formats of calls are in `tools/formats.py`.

A mistake in a call becomes text that the policy reads, and the episode continues.
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

from slimrl.errors import RolloutError, UserError, describe, nearest
from slimrl.io.text import is_writable
from slimrl.tools.json_schema import mistake_of
from slimrl.types import Message

Tool = Callable[..., Any]
EXAMPLES = {"string": '"words"', "integer": "1", "number": "1.5", "boolean": "True", "array": "[]", "object": "{}"}


class ToolError(Exception):
    """A mistake of the policy in a call. The policy reads the text of this error."""


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One attempt of the policy at a call.

    `arguments` are texts in the order of the tool's parameters; `tool` is empty if the policy named no tool. `error`
    describes the mistake, or is empty.

    >>> CallAttempt("search_pages", ("ampere",)).error
    ''
    """

    tool: str
    arguments: tuple[str, ...] = ()
    error: str = ""


class TypedTool:
    """A tool whose parameters have types, as a JSON schema.

    `call(**arguments)` makes a call, and may be async. It raises ToolError with a text for the policy. `of_texts` is
    True for a function without types, which accepts only texts.
    """

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        call: Callable[..., Any],
        of_texts: bool = False,
    ) -> None:
        self.__name__, self.__doc__ = name, description
        self.schema, self.call, self.of_texts = schema, call, of_texts

    def __call__(self, **arguments: Any) -> Any:
        return self.call(**arguments)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schema of each parameter, by its name."""
        found = self.schema.get("properties")
        return found if isinstance(found, Mapping) else {}


def _to_typed(tool: Tool) -> TypedTool:
    """Return a TypedTool unchanged, and convert a function to a tool that accepts only texts."""
    if isinstance(tool, TypedTool):
        return tool
    parameters = inspect.signature(tool).parameters
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in parameters}, "required": required}
    return TypedTool(tool.__name__, inspect.getdoc(tool) or "", schema, tool, of_texts=True)


def tool_of(function: Callable[..., Any], where: str = "") -> TypedTool:
    """Convert the function, which may be async, to a tool with the types of its hints. A parameter without a hint is
    text.

    Exceptions of the function become text that the policy reads, except RolloutError. Raise UserError, prefixed with
    `where`, for a hint without a JSON schema.
    """
    where = where or f"tool `{function.__name__}`"
    try:
        hints = get_type_hints(function)
    except Exception as error:
        raise UserError(f"{where}: its types cannot be read: {describe(error)}") from error
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    kinds: dict[str, TypeAdapter[Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise UserError(f"{where}: each parameter needs a name, and `{parameter}` has none of its own.")
        hint = hints.get(name, str)
        try:
            kinds[name] = TypeAdapter(hint)
            found = kinds[name].json_schema()
        except PydanticUserError as error:
            raise UserError(
                f"{where}: `{name}` has the type {hint!r:.80}, which a call cannot hold. Take str, int, float, bool, "
                "list, dict or Literal."
            ) from error
        if definitions := found.pop("$defs", None):
            schema.setdefault("$defs", {}).update(definitions)
        schema["properties"][name] = found
        if parameter.default is parameter.empty:
            schema["required"].append(name)
    return TypedTool(function.__name__, inspect.getdoc(function) or "", schema, _guard(function, kinds))


def _guard(function: Callable[..., Any], kinds: Mapping[str, TypeAdapter[Any]]) -> Callable[..., Any]:
    """Wrap the function, so that it receives values of its types, and its errors become text that the policy reads."""

    async def call(**arguments: Any) -> Any:
        try:
            typed = {name: kinds[name].validate_json(json.dumps(value)) for name, value in arguments.items()}
            result = function(**typed)
            return await result if inspect.isawaitable(result) else result
        except (ToolError, RolloutError):
            raise
        except Exception as error:
            raise ToolError(f"{function.__name__}: {describe(error)}") from error

    return call


def arguments_of(
    tools: Mapping[str, Tool], name: str, positional: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the checked arguments of a call, keyed by the names of the tool's parameters. Raise ToolError for an
    unknown tool or parameter, a missing argument, or an argument of a wrong type. A tool that is not a TypedTool
    accepts only texts."""
    if name not in tools:
        raise ToolError(f"there is no tool `{name:.100}`.{nearest(name, tools)}")
    tool = _to_typed(tools[name])
    parameters, called = tool.parameters, f"It is called as {usage(tool)}."
    named = by_name(tool, positional, keywords)
    try:  # a Python literal may be a set, or have a number as a key
        arguments: dict[str, Any] = json.loads(json.dumps(named, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ToolError(f"{name}: the arguments must be texts, numbers, lists and objects of JSON. {called}") from None
    if tool.of_texts and (wrong := [key for key, value in named.items() if not isinstance(value, str)]):
        raise ToolError(f"{name}: `{wrong[0]:.80}` must be text in quotes, not {named[wrong[0]]!r:.80}.")
    if not is_writable(arguments):
        raise ToolError(f"{name}: an argument has half of a surrogate pair, which is no text.")
    if unknown := [key for key in arguments if (parameters or tool.of_texts) and key not in parameters]:
        raise ToolError(f"{name}: there is no parameter `{unknown[0]:.80}`. {called}")
    if missing := [key for key in tool.schema.get("required", ()) if key not in arguments]:
        raise ToolError(f"{name}: `{missing[0]:.80}` is missing. {called}")
    for key, value in arguments.items():
        if mistake := mistake_of(value, parameters.get(key), tool.schema):
            raise ToolError(f"{name}: `{key:.80}` {mistake}. {called}")
    return arguments


def by_name(tool: Tool, positional: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call, keyed by their names. Raise ToolError for too many arguments, or for an argument
    that is given twice."""
    names, called = _to_typed(tool).parameters, f"It is called as {usage(tool)}."
    if len(positional) > len(names):
        raise ToolError(f"{tool.__name__}: it takes {len(names)} arguments, not {len(positional)}. {called}")
    placed = dict(zip(names, positional, strict=False))
    if twice := [key for key in keywords if key in placed]:
        raise ToolError(f"{tool.__name__}: `{twice[0]:.80}` is given twice. {called}")
    return {**placed, **keywords}


def usage(tool: Tool) -> str:
    """Return a call of the tool as text, with the names of its parameters as arguments.

    >>> usage(usage)
    'usage("tool")'
    """
    typed = _to_typed(tool)
    if typed.of_texts:
        texts = ", ".join(f'"{name}"' for name in typed.parameters)
        return f"{tool.__name__}({texts})"
    required = typed.schema.get("required", ())
    named = [f"{name}{_type_of(kind)}{'' if name in required else ' = ...'}" for name, kind in typed.parameters.items()]
    return f"{tool.__name__}({', '.join(named)})"


def _type_of(schema: Any) -> str:
    """Return text to append to a parameter's name, such as ": integer"; empty if the schema has no single type."""
    if not isinstance(schema, Mapping):
        return ""
    if allowed := _values_of(schema):
        return f": {' | '.join(json.dumps(one, ensure_ascii=False) for one in allowed[:20])}"
    return f": {schema['type']}" if isinstance(schema.get("type"), str) else ""


def _values_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that the schema lists; empty without a list. `const` is a list of one value."""
    return [schema["const"]] if "const" in schema else schema.get("enum") or []


def example_call(tool: Tool) -> str:
    """Return a call of the tool as text, with arguments of the right types.

    >>> example_call(TypedTool("add", "", {"properties": {"a": {"type": "integer"}}, "required": ["a"]}, dict))
    'add(1)'
    """
    tool = _to_typed(tool)
    required = [tool.parameters[name] for name in tool.schema.get("required", ()) if name in tool.parameters]
    values = [
        json.dumps(allowed[0]) if (allowed := _values_of(one)) else EXAMPLES.get(one.get("type"), '"words"')
        for one in required
    ]
    return f"{tool.__name__}({', '.join(values)})"


def purpose(tool: Tool) -> str:
    """Return the first line of a tool's docstring, which begins in lower case, to follow the tool's name.

    >>> purpose(purpose)
    "return the first line of a tool's docstring, which begins in lower case, to follow the tool's name."
    """
    line = (inspect.getdoc(tool) or "").partition("\n")[0]
    return line[:1].lower() + line[1:]


def schema_of(tool: Tool) -> dict[str, Any]:
    """Return the tool's JSON schema for chat templates and OpenAI's API. If the tool is a function and not a TypedTool,
    all its parameters are strings."""
    tool = _to_typed(tool)
    function = {"name": tool.__name__, "description": tool.__doc__ or "", "parameters": dict(tool.schema)}
    return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Frame:
    """The text around a tool's result, and the maximum number of the result's tokens that the policy reads."""

    role: Literal["user", "tool"]
    max_tokens: int
    before: str = ""
    after: str = ""

    def message(self, text: str, appendix: str = "") -> Message:
        """Return a message with `text` and `appendix`. The text is cut to `max_tokens` before the policy reads it; the
        appendix is not cut."""
        # Positions count characters. The text is cut later, by the code that has the policy's tokenizer.
        begin, end = len(self.before), len(self.before) + len(text)
        return {
            "role": self.role,
            "content": f"{self.before}{text}{appendix}{self.after}",
            "excerpt": {"begin": begin, "end": end, "max_tokens": self.max_tokens},
        }
