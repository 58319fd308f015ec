"""Turns replies of the policy into actions of an OpenEnv server, by the JSON schema that the server gives.

A reply that is no action raises `WrongAction`, whose text is for the policy to read.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from slimrl.errors import RolloutError, UserError, nearest, require
from slimrl.io.text import is_too_deep, spans_between
from slimrl.models.chat.tags import OPEN
from slimrl.models.chat.tool_calls import ToolCall, ToolReader
from slimrl_envs.openenv.session import WrongAction

FORMATS = ("auto", "text", "json", "native")
ACT = "act"  # the name of the one function that a structured action is in the native form
CALL_KEYS = {"tool_name", "arguments"}  # of an action that calls a tool of MCP
MAX_ACTION = 1 << 20  # characters

Schema = dict[str, Any]


class Actions(Protocol):
    """The actions of an environment that are JSON objects."""

    def functions(self) -> list[dict[str, Any]]:
        """The functions that make actions, as chat templates take them."""

    def from_call(self, name: str, arguments: Any) -> dict[str, Any]:
        """The action of a call."""

    def from_object(self, value: dict[str, Any]) -> dict[str, Any]:
        """The action of a JSON object."""

    def describe(self) -> str:
        """What a JSON object must hold, for the policy to read."""


class ObjectActions:
    """Actions that are objects of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def functions(self) -> list[dict[str, Any]]:
        text = str(self._schema.get("description") or "Acts in the environment.")
        return [_function(ACT, {"description": text, "parameters": self._schema})]

    def from_call(self, name: str, arguments: Any) -> dict[str, Any]:
        if name != ACT:
            raise WrongAction(f"there is no function `{name:.100}`, only `{ACT}`.")
        return self.from_object(arguments)

    def from_object(self, value: dict[str, Any]) -> dict[str, Any]:
        return check(value, self._schema, "the action")

    def describe(self) -> str:
        return f"a JSON object with {_describe_fields(self._schema)}"


class ToolActions:
    """Actions that call one of the tools of an MCP environment."""

    def __init__(self, tools: Mapping[str, dict[str, Any]]) -> None:
        self._tools = tools

    def functions(self) -> list[dict[str, Any]]:
        return [_function(name, tool) for name, tool in self._tools.items()]

    def from_call(self, name: str, arguments: Any) -> dict[str, Any]:
        if name not in self._tools:
            raise WrongAction(f"there is no tool `{name:.100}`.{nearest(name[:100], self._tools)}")
        checked = check(arguments, self._tools[name]["parameters"], f"the call of `{name}`")
        return {"type": "call_tool", "tool_name": name, "arguments": checked}

    def from_object(self, value: dict[str, Any]) -> dict[str, Any]:
        name = value.get("name")
        if not isinstance(name, str) or value.keys() - {"name", "arguments"}:
            raise WrongAction('the JSON object must be {"name": "tool", "arguments": {...}}.')
        return self.from_call(name, value.get("arguments", {}))

    def describe(self) -> str:
        lines = [
            f"- {name}: {tool['description']} Arguments: {_describe_fields(tool['parameters'])}"
            for name, tool in self._tools.items()
        ]
        return "\n".join(['a JSON object {"name": "tool", "arguments": {...}} that calls one of these tools:', *lines])


class Reader(Protocol):
    """Reads actions in replies. `role` is that of the messages which answer them."""

    role: Literal["user", "tool"]

    def instructions(self) -> str:
        """How to act, for the policy to read; empty where there is nothing to say."""

    def functions(self) -> list[dict[str, Any]]:
        """The functions that the chat template is to show."""

    def read(self, reply: str) -> dict[str, Any]:
        """The action of a reply, without its thoughts. Raises WrongAction if there is none."""


class TextReader:
    """A reply is the one text that an action has: the whole reply, or what stands in the first tag."""

    role: Literal["user", "tool"] = "user"

    def __init__(self, schema: Schema, field: str, tag: str) -> None:
        self._schema, self._field, self._tag = schema, field, tag

    def instructions(self) -> str:
        choices = self._schema["properties"][self._field].get("enum")
        one_of = f", which is one of: {', '.join(map(str, choices))}" if choices else ""
        if self._tag:
            return f"Answer with <{self._tag}>{self._field}</{self._tag}>{one_of}."
        return f"Your whole answer is the {self._field}{one_of}." if one_of else ""

    def functions(self) -> list[dict[str, Any]]:
        return []

    def read(self, reply: str) -> dict[str, Any]:
        text = in_tag(reply, self._tag) if self._tag else reply.strip()
        return check({self._field: text}, self._schema, "the answer")


class JsonReader:
    """A reply has a JSON object in a tag; the first one counts."""

    role: Literal["user", "tool"] = "user"

    def __init__(self, actions: Actions, tag: str) -> None:
        self._actions, self._tag = actions, tag or "action"

    def instructions(self) -> str:
        return f"Act by writing, in <{self._tag}>...</{self._tag}>, {self._actions.describe()}"

    def functions(self) -> list[dict[str, Any]]:
        return []

    def read(self, reply: str) -> dict[str, Any]:
        return self._actions.from_object(read_object(in_tag(reply, self._tag)))


class NativeReader:
    """A reply has a call in the form of the model's own chat template; the first one counts."""

    role: Literal["user", "tool"] = "tool"

    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    def instructions(self) -> str:
        return "Make one call at a time."

    def functions(self) -> list[dict[str, Any]]:
        return self._actions.functions()

    def read(self, reply: str) -> dict[str, Any]:
        parts = ToolReader().read(reply, closed=True)
        call = next((part for part in parts if isinstance(part, ToolCall)), None)
        if call is None:
            begun = "the call is not well-formed" if OPEN in reply else "there is no call"
            raise WrongAction(f'{begun}. Write <tool_call>{{"name": "...", "arguments": {{...}}}}</tool_call>.')
        return self._actions.from_call(call.name, read_object(call.arguments))


def is_tool_schema(schema: Schema) -> bool:
    """Whether actions of the schema call tools of MCP. The base class of actions, without a field, takes such calls."""
    fields = schema["properties"].keys() - {"metadata", "type"}
    return not fields or fields == CALL_KEYS


def without_metadata(schema: Schema) -> Schema:
    """The schema without the field for notes, which every action of OpenEnv has and no policy fills."""
    properties = {name: field for name, field in schema["properties"].items() if name != "metadata"}
    required = [name for name in schema.get("required", ()) if name != "metadata"]
    return {**schema, "type": "object", "properties": properties, "required": required, "additionalProperties": False}


def text_field(schema: Schema) -> str:
    """The name of the one field of an action, if it is a text; else empty."""
    names = list(schema["properties"])
    return str(names[0]) if len(names) == 1 and _is_text(schema["properties"][names[0]]) else ""


def reader_of(schema: Schema, format: str, tag: str, field: str) -> Reader:
    """The reader of replies for actions of a schema that calls no tools. Raises UserError for a format or a field that
    the schema does not have."""
    found = field or text_field(schema)
    if field and not _is_text(schema["properties"].get(field)):
        raise UserError(f"openenv: an action has no text `{field}`.{nearest(field, schema['properties'])}")
    if format == "text" and not found:
        raise UserError(
            'openenv: `format` = "text" needs an action with one text, and this has '
            f'{", ".join(schema["properties"])}: name the text in `text_field`, or take "json" or "native".'
        )
    if found and format in ("auto", "text"):
        return TextReader(schema, found, tag)
    actions = ObjectActions(schema)
    return NativeReader(actions) if format == "native" else JsonReader(actions, tag)


def tool_reader_of(tools: Mapping[str, dict[str, Any]], format: str, tag: str) -> Reader:
    """The reader of replies that call tools."""
    return JsonReader(ToolActions(tools), tag) if format == "json" else NativeReader(ToolActions(tools))


def in_tag(reply: str, tag: str) -> str:
    """What stands in the first such tag of a reply."""
    found = next(spans_between(reply, f"<{tag}>", f"</{tag}>"), None)
    if found is None:
        raise WrongAction(f"there is no <{tag}>...</{tag}> in the answer.")
    return reply[slice(*found)].strip()


def read_object(text: str) -> dict[str, Any]:
    """The JSON object that a text is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or is_too_deep(value):
        raise WrongAction(f"this is no JSON object: {text!r:.100}.")
    return value


def check(value: Any, schema: Schema, what: str) -> dict[str, Any]:
    """The value, if it obeys the schema and can be sent. Raises WrongAction if not."""
    jsonschema = require("jsonschema", "openenv", "an OpenEnv server")
    referencing = require("referencing", "openenv", "an OpenEnv server")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:  # half of a surrogate pair, nan or infinity
        raise WrongAction(f"{what} has a text or a number that cannot be sent.") from None
    if len(text) > MAX_ACTION:
        raise WrongAction(f"{what} is too long.")
    # An empty registry: a reference to another document would have it fetched.
    validator = jsonschema.Draft202012Validator(schema, registry=referencing.Registry())
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error is not None:
        place = ".".join(map(str, error.absolute_path))
        raise WrongAction(f"{what} cannot be taken{f' for its {place:.100}' if place else ''}: {error.message:.200}.")
    if not isinstance(value, dict):
        raise WrongAction(f"{what} must be a JSON object.")
    return value


def check_schema(schema: Schema, whose: str) -> Schema:
    """The schema itself. Raises RolloutError for what is no JSON schema."""
    jsonschema = require("jsonschema", "openenv", "an OpenEnv server")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.exceptions.SchemaError, RecursionError) as error:
        raise RolloutError("environment_error", f"the schema of {whose} is no JSON schema: {error!s:.300}") from error
    return schema


def _function(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": tool["description"], "parameters": tool["parameters"]},
    }


def _is_text(field: object) -> bool:
    return isinstance(field, dict) and field.get("type") == "string"


def _describe_fields(schema: Schema) -> str:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not properties:
        return "no fields"
    return "; ".join(
        f"{json.dumps(name)} ({_describe_kind(field)}{'' if name in required else ', optional'})"
        for name, field in properties.items()
    )


def _describe_kind(field: object) -> str:
    shown = {key: field[key] for key in ("type", "enum", "const") if key in field} if isinstance(field, dict) else {}
    kind = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in shown.values()) or "any"
    text = field.get("description") if isinstance(field, dict) else None
    return f"{kind}: {text}" if isinstance(text, str) else kind
