"""Shows BFCL's functions to the policy, reads the policy's calls, and writes right calls. No text is run as code."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slimrl.models.chat import tool_calls
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.models.chat.tool_calls import ToolCall
from slimrl.tools.base import TypedTool, by_name
from slimrl.tools.formats import NativeFormat, parse_call
from slimrl.types import Message
from slimrl_envs.bfcl.package import Entry, openapi_types

Call = tuple[str, dict[str, Any]]  # the name of a function, and the arguments by name


def read_calls(reply: str) -> list[Call]:
    """Return the calls in a reply, outside of its thoughts. As in BFCL, a malformed call counts as no call."""
    found: list[Call] = []
    for part in tool_calls.read_calls(without_thoughts(reply)):
        if isinstance(part, ToolCall):
            try:
                arguments = json.loads(part.arguments)
            except (ValueError, RecursionError):
                continue
            found += [(part.name, arguments)] if isinstance(arguments, dict) else []
    return found


def write_calls(calls: Sequence[Call]) -> str:
    """Return the reply that makes the calls, in the format of the chat template."""
    return "\n".join(NativeFormat({}, 0).write_call(name, **arguments) for name, arguments in calls)


def json_schema(doc: Any) -> Any:
    """Convert a schema of BFCL to a JSON schema. Only the names of types differ, such as `dict` and `float`."""
    if isinstance(doc, list):
        return [json_schema(one) for one in doc]
    if not isinstance(doc, Mapping):
        return doc
    found = {key: json_schema(value) for key, value in doc.items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = openapi_types().get(kind, kind)
    return found


def tool_schemas(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the functions as chat templates take them."""
    return [{"type": "function", "function": json_schema(function)} for function in functions]


def opening(entry: Entry) -> list[Message]:
    """Return the first messages of an episode. The first message lists the functions, except functions that a later
    turn adds."""
    later = {name for names in entry.get("missed_function", {}).values() for name in names}
    messages: list[Message] = [{"role": one["role"], "content": one["content"]} for one in entry["question"][0]]
    messages[0]["tools"] = tool_schemas([one for one in entry["function"] if one["name"] not in later])
    return messages


def right_calls(entry: Entry) -> list[list[Call]]:
    """Return calls that the ground truth accepts, for each of the user's turns.

    The ground truth of a single turn lists acceptable values for each argument. Empty text as a value means that the
    argument may be left out. The ground truth of several turns has one Python call for each call.
    """
    if "involved_classes" in entry:
        tools = {one["name"]: TypedTool(one["name"], "", one["parameters"], dict) for one in entry["function"]}
        return [[_bind(tools, text) for text in turn] for turn in entry["ground_truth"]]
    required = {one["name"]: one["parameters"]["required"] for one in entry["function"]}
    calls = [call for one in entry["ground_truth"] for call in one.items()]
    return [[(name, _first_values(accepted, required[name])) for name, accepted in calls]]


def _bind(tools: Mapping[str, TypedTool], text: str) -> Call:
    name, positional, keywords = parse_call(text)
    return name, by_name(tools[name], positional, keywords)


def _first_values(accepted: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the first acceptable value of each argument that must be given. In nested objects, a few values are not in
    a list."""
    lists = {name: values if isinstance(values, list) else [values] for name, values in accepted.items()}
    given = {name: values for name, values in lists.items() if name in required or "" not in values}
    return {name: _plain(next((one for one in values if one != ""), "")) for name, values in given.items()}


def _plain(value: Any) -> Any:
    """Return a value of the ground truth as an argument. An object in the ground truth has a list of acceptable values
    for each key."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return _first_values(value, ()) if isinstance(value, dict) else value
