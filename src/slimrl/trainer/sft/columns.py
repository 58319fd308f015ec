"""Removes the padding of columnar files. In such a file, an object has null values for all keys of other objects, and
an integer may be stored as a decimal. JSONL that was converted from such a file has the same padding."""

from collections.abc import Iterator, Mapping
from typing import Any

from slimrl.io.text import parse_json

Schema = Mapping[str, Any]


def without_padding(row: Any, is_columnar: bool) -> Any:
    """Return the row. If it is from a columnar file or padded, null values are removed. A null argument of a call is
    kept if the function's schema requires or allows it, and removed if there is no schema."""
    if not isinstance(row, dict) or not (is_columnar or _is_padded(row)):
        return row
    return _without_nulls(row, {name: schema for tool in _tools(row) for name, schema in _schemas(tool)})


def _is_padded(row: Mapping[str, Any]) -> bool:
    """Return True if a row of JSONL is padded: it has null `tool_calls` in a message that is not the assistant's, or a
    tool with a null property in its schema."""
    others = (message for message in _messages(row) if message.get("role") != "assistant")
    if any(message.get("tool_calls", ()) is None for message in others):
        return True
    return any(None in schema.get("properties", {}).values() for tool in _tools(row) for _, schema in _schemas(tool))


def _messages(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    lists = (value for value in row.values() if isinstance(value, list))
    return (message for messages in lists for message in messages if isinstance(message, dict))


def _tools(row: Mapping[str, Any]) -> list[Any]:
    found = [row.get("tools"), *(message["tools"] for message in _messages(row) if "tools" in message)]
    return [tool for tools in map(parse_json, found) if isinstance(tools, list) for tool in map(parse_json, tools)]


def _schemas(tool: Any) -> Iterator[tuple[str, Schema]]:
    """Yield the name and the parameters' schema of a tool, unless it is malformed."""
    function = (tool.get("function") or tool) if isinstance(tool, dict) else {}
    if isinstance(function, dict) and isinstance(function.get("name"), str):
        schema = function.get("parameters")
        if isinstance(schema, dict) and isinstance(schema.get("properties", {}), dict):
            yield function["name"], schema


def _without_nulls(value: Any, schemas: Mapping[str, Schema]) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if item is not None}
    schema = schemas.get(value["name"], {}) if isinstance(value.get("name"), str) else {}
    return {
        key: _fit(item, schema) if key == "arguments" and schema else _without_nulls(item, schemas)
        for key, item in kept.items()
    }


def _fit(value: Any, schema: Schema) -> Any:
    """Return an argument of a call, without the nulls and decimals that its schema forbids."""
    if isinstance(value, list):
        items = schema.get("items")
        return [_fit(item, items if isinstance(items, dict) else {}) for item in value]
    if isinstance(value, float) and value.is_integer() and _types(schema) == {"integer"}:
        return int(value)
    if not isinstance(value, dict):
        return value
    given, needed = schema.get("properties"), schema.get("required")
    known: Mapping[str, Any] = given if isinstance(given, dict) else {}
    required = needed if isinstance(needed, list) else []
    return {
        key: _fit(item, known.get(key) or {})
        for key, item in value.items()
        if item is not None or key in required or _may_be_null(known.get(key))
    }


def _types(schema: Schema) -> set[str]:
    given = schema.get("type")
    return {given} if isinstance(given, str) else {one for one in given or () if isinstance(one, str)}


def _may_be_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    options = [one for key in ("anyOf", "oneOf") for one in schema.get(key) or ()]
    return (
        schema.get("nullable") is True
        or "null" in _types(schema)
        or None in (schema.get("enum") or ())
        or any(map(_may_be_null, options))
    )
