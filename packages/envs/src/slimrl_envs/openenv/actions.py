"""Converts the policy's replies to actions of an OpenEnv server, and the server's observations to texts.

Each kind of action is a `TypedTool` with the server's JSON schema. A call of the tool returns the action. A reply
without a valid action raises `ToolError` with a message for the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.errors import RolloutError
from slimrl.io.text import is_too_deep, parse_json, spans_between
from slimrl.models.chat.thoughts import CLOSE, OPEN
from slimrl.models.chat.tool_calls import ToolCall, read_calls
from slimrl.tools.base import ToolError, TypedTool, arguments_of, schema_of
from slimrl.tools.formats import as_json
from slimrl.tools.mcp_server import read_content

ACT = "act"  # the name of the tool whose arguments are the fields of an action
TAGS = "<action>", "</action>"
CALL_KEYS = {"tool_name", "arguments"}  # the fields of an action that calls an MCP tool
RESULT = {"tool_name", "result", "error"}  # the fields of the result of a tool call
NOTHING = "(nothing to see)"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of actions from replies.

    With the form `text`, the reply is the action's only text. With `json`, the first tags contain a JSON object. With
    `native`, the action is the first call of one of the `tools`, in the form of the chat template. In the other forms
    `tools` has only `ACT`.
    """

    tools: Mapping[str, TypedTool]
    form: Literal["text", "json", "native"]

    @property
    def role(self) -> Literal["user", "tool"]:
        """The role of the messages with which the environment answers an action."""
        return "tool" if self.form == "native" else "user"

    def functions(self) -> list[dict[str, Any]]:
        """Return the schemas of the tools for the chat template. Return an empty list unless the form is `native`."""
        return [schema_of(tool) for tool in self.tools.values()] if self.form == "native" else []

    def instructions(self) -> str:
        """Return the instructions for the policy on the form of actions; an empty text if none are needed."""
        if self.form == "native":
            return "Make one call at a time."
        fields = dict(self.tools[ACT].parameters)
        if self.form == "json":
            begin = f"Act by writing, in {'...'.join(TAGS)}, a JSON object with fields of this JSON schema:"
            return f"{begin} {as_json(fields)}"
        ((name, field),) = fields.items()
        choices = field.get("enum")
        return f"Your whole answer is the {name}, which is one of: {', '.join(map(str, choices))}." if choices else ""

    def read(self, reply: str) -> dict[str, Any]:
        """Return the action in `reply`, a reply without its thoughts. Raise ToolError without a valid action."""
        name, arguments = self._read_call(reply)
        checked = arguments_of(self.tools, name, (), arguments)
        action: dict[str, Any] = self.tools[name].call(**checked)
        return action

    def _read_call(self, reply: str) -> tuple[str, dict[str, Any]]:
        if self.form == "text":
            return ACT, dict.fromkeys(self.tools[ACT].parameters, reply.strip())
        if self.form == "json":
            span = next(spans_between(reply, *TAGS), None)
            if span is None:
                raise ToolError(f"there is no {'...'.join(TAGS)} in the answer.")
            return ACT, read_object(reply[slice(*span)])
        parts = read_calls(reply)
        call = next((part for part in parts if isinstance(part, ToolCall)), None)
        if call is None:
            begun = "the call is not well-formed" if OPEN in reply else "there is no call"
            raise ToolError(f'{begun}. Write {OPEN}{{"name": "...", "arguments": {{...}}}}{CLOSE}.')
        return call.name, read_object(call.arguments)


def is_tool_schema(schema: Schema) -> bool:
    """Return True if actions with this schema call MCP tools. This includes a schema without fields: it is the schema
    of the base class of actions, and servers with this class also accept calls of MCP tools."""
    fields = schema["properties"].keys() - {"metadata", "type"}
    return not fields or fields == CALL_KEYS


def reader_of(schema: Schema) -> Reader:
    """Return the reader of actions with this schema. The field `metadata` is left out, because policies do not fill
    it."""
    properties = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    own = {**schema, "type": "object", "properties": properties, "required": required, "additionalProperties": False}
    tool = TypedTool(ACT, str(schema.get("description") or "Acts in the environment."), own, dict)
    kinds = [field.get("type") if isinstance(field, dict) else None for field in properties.values()]
    return Reader({ACT: tool}, "text" if kinds == ["string"] else "json")


def mcp_tool(name: str, description: str, schema: Schema) -> TypedTool:
    """Return a tool of an MCP environment. The tool's action contains its name and the arguments."""
    kind = {"type": "call_tool", "tool_name": name}
    return TypedTool(name, description, schema, lambda **arguments: {**kind, "arguments": arguments})


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raise ToolError for any other text, and for an object that is nested too deeply."""
    value = parse_json(text)
    if not isinstance(value, dict) or is_too_deep(value):
        raise ToolError(f"this is no JSON object: {text.strip()!r:.100}.")
    return value


def text_of(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the text of an observation for the policy, from the fields in `names`. With empty `names`, all fields
    except `metadata` are used. A single text is returned unchanged; several fields are returned with their names. Raise
    RolloutError if a field in `names` is missing.

    >>> text_of({"text": "hello", "metadata": {}}, ())
    'hello'
    >>> text_of({"board": "x.o", "moves": [1, 2]}, ())
    'board: x.o\\nmoves: [1, 2]'
    """
    if not names and set(fields) - {"metadata"} == RESULT:
        return _result_text(fields) or NOTHING
    if missing := [name for name in names if name not in fields]:
        raise RolloutError(
            "environment_error",
            f"the observation has no field `{missing[0]}`, which `observe` names; it has {', '.join(fields):.200}",
        )
    shown = {name: fields[name] for name in names or fields if names or name != "metadata"}
    shown = {name: value for name, value in shown.items() if value is not None and value != ""}
    if len(shown) == 1 and isinstance(value := next(iter(shown.values())), str):
        return value
    return "\n".join(f"{name}: {as_json(value)}" for name, value in shown.items()) or NOTHING


def _result_text(fields: Mapping[str, Any]) -> str:
    error, result = fields["error"], fields["result"]
    if error is not None:
        return f"Error: {as_json(error['message'] if isinstance(error, dict) and 'message' in error else error)}"
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return read_content(content, result.get("structured_content", result.get("structuredContent")))
    return as_json(result)
