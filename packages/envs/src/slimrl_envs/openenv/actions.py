"""Converts the policy's replies to actions of an OpenEnv server, and the server's observations to texts.

Each kind of action is a `TypedTool` with the server's JSON schema. A call of the tool returns the action. A reply
without a valid action raises `ToolError` with a message for the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.errors import RolloutError, UserError, nearest
from slimrl.io.text import is_too_deep, parse_json, spans_between
from slimrl.models.chat.tags import CLOSE, OPEN
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl.tools.base import ToolError, TypedTool, arguments_of, schema_of
from slimrl.tools.formats import as_json
from slimrl.tools.mcp_server import read_content

FormatName = Literal["auto", "text", "json", "native"]
ACT = "act"  # the name of the tool whose arguments are the fields of an action
CALL_KEYS = {"tool_name", "arguments"}  # the fields of an action that calls an MCP tool
RESULT = {"tool_name", "result", "error"}  # the fields of the result of a tool call
NOTHING = "(nothing to see)"

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of actions from replies. With `calls_tools`, `tools` has the tools of an MCP environment, otherwise only
    `ACT`.

    `format` decides where the action is. With `text`, the value of `field` is the text in the first `tag`, or the whole
    reply if `tag` is empty. With `json`, the first `tag` contains a JSON object. With `native`, the action is the first
    call in the format of the chat template.
    """

    tools: Mapping[str, TypedTool]
    format: Literal["text", "json", "native"]
    tag: str = ""
    field: str = ""
    calls_tools: bool = False

    @property
    def role(self) -> Literal["user", "tool"]:
        """The role of the messages with which the environment answers an action."""
        return "tool" if self.format == "native" else "user"

    def functions(self) -> list[dict[str, Any]]:
        """Return the schemas of the tools for the chat template. Return an empty list unless the format is `native`."""
        return [schema_of(tool) for tool in self.tools.values()] if self.format == "native" else []

    def instructions(self) -> str:
        """Return the instructions for the policy on the format of actions; an empty text if none are needed."""
        if self.format == "native":
            return "Make one call at a time."
        if self.format == "json":
            fields = {name: as_json(dict(tool.parameters)) for name, tool in self.tools.items()}
            begin = f"Act by writing, in <{self.tag}>...</{self.tag}>, a JSON object"
            if not self.calls_tools:
                return f"{begin} with fields of this JSON schema: {fields[ACT]}"
            lines = [f"- {name}: {self.tools[name].__doc__} Arguments: {schema}" for name, schema in fields.items()]
            return "\n".join(
                [f'{begin} {{"name": "tool", "arguments": {{...}}}} that calls one of these tools:', *lines]
            )
        choices = self.tools[ACT].parameters[self.field].get("enum")
        one_of = f", which is one of: {', '.join(map(str, choices))}" if choices else ""
        if self.tag:
            return f"Answer with <{self.tag}>{self.field}</{self.tag}>{one_of}."
        return f"Your whole answer is the {self.field}{one_of}." if one_of else ""

    def read(self, reply: str) -> dict[str, Any]:
        """Return the action in `reply`, a reply without its thoughts. Raise ToolError without a valid action."""
        name, arguments = self._read_call(reply)
        checked = arguments_of(self.tools, name, (), arguments)
        action: dict[str, Any] = self.tools[name].call(**checked)
        return action

    def _read_call(self, reply: str) -> tuple[str, dict[str, Any]]:
        text = in_tag(reply, self.tag) if self.tag else reply.strip()
        if self.format == "text":
            return ACT, {self.field: text}
        if self.format == "json" and not self.calls_tools:
            return ACT, read_object(text)
        parts = ToolReader().read(reply if self.format == "native" else f"{OPEN}{text}{CLOSE}", closed=True)
        call = next((part for part in parts if isinstance(part, ToolCall)), None)
        if call is None:
            begin, end = (OPEN, CLOSE) if self.format == "native" else (f"<{self.tag}>", f"</{self.tag}>")
            begun = "the call is not well-formed" if begin in reply else "there is no call"
            raise ToolError(f'{begun}. Write {begin}{{"name": "...", "arguments": {{...}}}}{end}.')
        return call.name, read_object(call.arguments)


def is_tool_schema(schema: Schema) -> bool:
    """Return True if actions with this schema call MCP tools. This includes a schema without fields: it is the schema
    of the base class of actions, and servers with this class also accept calls of MCP tools."""
    fields = schema["properties"].keys() - {"metadata", "type"}
    return not fields or fields == CALL_KEYS


def act_tool(schema: Schema) -> TypedTool:
    """Return the tool `ACT` with the fields of the action's `schema`, except `metadata`, which policies do not fill."""
    properties = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    own = {**schema, "type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return TypedTool(ACT, str(schema.get("description") or "Acts in the environment."), own, dict)


def mcp_tool(name: str, description: str, schema: Schema) -> TypedTool:
    """Return a tool of an MCP environment. The tool's action contains its name and the arguments."""
    kind = {"type": "call_tool", "tool_name": name}
    return TypedTool(name, description, schema, lambda **arguments: {**kind, "arguments": arguments})


def reader_of(tool: TypedTool, format: str, tag: str, field: str) -> Reader:
    """Return the reader of replies that fill the fields of `tool`. Raise UserError if `format` or `field` does not fit
    the tool's schema."""
    names = [*tool.parameters]
    if field and not _is_text(tool.parameters.get(field)):
        raise UserError(f"openenv: an action has no text `{field}`.{nearest(field, names)}")
    if not field and len(names) == 1 and _is_text(tool.parameters[names[0]]):
        field = names[0]
    if format == "text" and not field:
        raise UserError(
            'openenv: `format` = "text" needs an action with one text, and this has '
            f'{", ".join(names)}: name the text in `text_field`, or take "json" or "native".'
        )
    if field and format in ("auto", "text"):
        return Reader({ACT: tool}, "text", tag, field)
    return Reader({ACT: tool}, "native") if format == "native" else Reader({ACT: tool}, "json", tag or "action")


def mcp_reader_of(tools: Mapping[str, TypedTool], format: str, tag: str) -> Reader:
    """Return the reader of replies that call MCP tools."""
    return Reader(tools, "json", tag or "action", calls_tools=True) if format == "json" else Reader(tools, "native")


def in_tag(reply: str, tag: str) -> str:
    """Return the text in the first pair of tags `tag` in a reply. Raise ToolError if the reply has no such pair."""
    found = next(spans_between(reply, f"<{tag}>", f"</{tag}>"), None)
    if found is None:
        raise ToolError(f"there is no <{tag}>...</{tag}> in the answer.")
    return reply[slice(*found)].strip()


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raise ToolError for any other text, and for an object that is nested too deeply."""
    value = parse_json(text)
    if not isinstance(value, dict) or is_too_deep(value):
        raise ToolError(f"this is no JSON object: {text!r:.100}.")
    return value


def _is_text(field: object) -> bool:
    return isinstance(field, dict) and field.get("type") == "string"


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
