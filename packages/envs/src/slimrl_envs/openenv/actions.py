"""Turns replies of the policy into actions of an OpenEnv server, by the JSON schemas that the server gives.

Each kind of action is a tool of the core, whose call makes the action. A reply without a valid action raises
`ToolError`, whose text is for the policy to read.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from slimrl.errors import UserError, nearest
from slimrl.io.text import is_too_deep, spans_between
from slimrl.models.chat.tags import OPEN
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl.tools.base import ToolError, TypedTool, arguments_of, schema_of

FORMATS = ("auto", "text", "json", "native")
ACT = "act"  # the name of the tool whose arguments are the fields of an action
CALL_KEYS = {"tool_name", "arguments"}  # of an action that calls a tool of MCP

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the action in a reply. `tools` is `ACT` alone, or with `calls_tools` the tools of an MCP environment.

    `text`: the whole reply, or the text in the first `tag`, is the value of `field`. `json`: an object in the first
    `tag`. `native`: the first call in the form of the chat template.
    """

    tools: Mapping[str, TypedTool]
    format: Literal["text", "json", "native"]
    tag: str = ""
    field: str = ""
    calls_tools: bool = False

    @property
    def role(self) -> Literal["user", "tool"]:
        """The role of the messages that answer an action."""
        return "tool" if self.format == "native" else "user"

    def functions(self) -> list[dict[str, Any]]:
        """The functions that the chat template shows."""
        return [schema_of(tool) for tool in self.tools.values()] if self.format == "native" else []

    def instructions(self) -> str:
        """How to act, for the policy to read; empty where there is nothing to explain."""
        if self.format == "native":
            return "Make one call at a time."
        if self.format == "json":
            return f"Act by writing, in <{self.tag}>...</{self.tag}>, {self._describe_object()}"
        choices = self.tools[ACT].parameters[self.field].get("enum")
        one_of = f", which is one of: {', '.join(map(str, choices))}" if choices else ""
        if self.tag:
            return f"Answer with <{self.tag}>{self.field}</{self.tag}>{one_of}."
        return f"Your whole answer is the {self.field}{one_of}." if one_of else ""

    def read(self, reply: str) -> dict[str, Any]:
        """Return the action of a reply that has no thoughts. Raises ToolError if there is none."""
        if self.format == "native":
            parts = ToolReader().read(reply, closed=True)
            call = next((part for part in parts if isinstance(part, ToolCall)), None)
            if call is None:
                begun = "the call is not well-formed" if OPEN in reply else "there is no call"
                raise ToolError(f'{begun}. Write <tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call>.')
            return self._make(call.name, read_object(call.arguments))
        text = in_tag(reply, self.tag) if self.tag else reply.strip()
        if self.format == "text":
            return self._make(ACT, {self.field: text})
        value = read_object(text)
        if not self.calls_tools:
            return self._make(ACT, value)
        name, arguments = value.get("name"), value.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict) or value.keys() - {"name", "arguments"}:
            raise ToolError('the JSON object must be {"name": "tool", "arguments": {...}}.')
        return self._make(name, arguments)

    def _make(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        checked = arguments_of(self.tools, name, (), arguments)
        action: dict[str, Any] = self.tools[name].call(**checked)
        return action

    def _describe_object(self) -> str:
        if not self.calls_tools:
            return f"a JSON object with {_describe_fields(self.tools[ACT])}"
        lines = [f"- {name}: {tool.__doc__} Arguments: {_describe_fields(tool)}" for name, tool in self.tools.items()]
        return "\n".join(['a JSON object {"name": "tool", "arguments": {...}} that calls one of these tools:', *lines])


def is_tool_schema(schema: Schema) -> bool:
    """Return True if actions call tools of MCP. The base class of actions, without a field, takes such calls too."""
    fields = schema["properties"].keys() - {"metadata", "type"}
    return not fields or fields == CALL_KEYS


def act_tool(schema: Schema) -> TypedTool:
    """The tool `ACT` of actions with this schema, without the field for notes that no policy fills."""
    properties = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    own = {**schema, "type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return TypedTool(ACT, str(schema.get("description") or "Acts in the environment."), own, dict)


def mcp_tool(name: str, description: str, schema: Schema) -> TypedTool:
    """The tool of an MCP environment, whose action names the tool."""
    kind = {"type": "call_tool", "tool_name": name}
    return TypedTool(name, description, schema, lambda **arguments: {**kind, "arguments": arguments})


def reader_of(tool: TypedTool, format: str, tag: str, field: str) -> Reader:
    """The reader of replies that fill the fields of `ACT`. Raises UserError for a format or a field that does not fit
    the schema."""
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
    """The reader of replies that call tools."""
    if format == "json":
        return Reader(tools, "json", tag or "action", calls_tools=True)
    return Reader(tools, "native", calls_tools=True)


def in_tag(reply: str, tag: str) -> str:
    """The text in the first such tag of a reply. Raises ToolError if there is none."""
    found = next(spans_between(reply, f"<{tag}>", f"</{tag}>"), None)
    if found is None:
        raise ToolError(f"there is no <{tag}>...</{tag}> in the answer.")
    return reply[slice(*found)].strip()


def read_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises ToolError for any other text, and for one that is nested too deeply."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or is_too_deep(value):
        raise ToolError(f"this is no JSON object: {text!r:.100}.")
    return value


def _is_text(field: object) -> bool:
    return isinstance(field, dict) and field.get("type") == "string"


def _describe_fields(tool: TypedTool) -> str:
    required = tool.schema.get("required", ())
    fields = [
        f"{json.dumps(name)} ({_describe_kind(field)}{'' if name in required else ', optional'})"
        for name, field in tool.parameters.items()
    ]
    return "; ".join(fields) or "no fields"


def _describe_kind(field: object) -> str:
    shown = {key: field[key] for key in ("type", "enum", "const") if key in field} if isinstance(field, dict) else {}
    kind = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in shown.values()) or "any"
    text = field.get("description") if isinstance(field, dict) else None
    return f"{kind}: {text}" if isinstance(text, str) else kind
