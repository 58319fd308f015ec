"""Removes the padding of columnar files. In a columnar file every object has the keys of all other objects, with null
as their value. Integers may be stored as decimals. JSONL that was converted from a columnar file has the same padding.
"""

from collections.abc import Mapping
from typing import Any


def without_padding(row: Any, is_columnar: bool) -> Any:
    """Return a padded row without null values, and with whole numbers as integers. Rows of JSONL without padding are
    returned unchanged. Arguments of a tool call keep null values only if they are a JSON text."""
    return _stripped(row) if isinstance(row, dict) and (is_columnar or _is_padded(row)) else row


def _is_padded(row: Mapping[str, Any]) -> bool:
    """Return True if a row of JSONL is padded: a message of another role than the assistant has null `tool_calls`."""
    lists = (value for value in row.values() if isinstance(value, list))
    messages = (message for messages in lists for message in messages if isinstance(message, dict))
    return any(message.get("tool_calls", ()) is None and message.get("role") != "assistant" for message in messages)


def _stripped(value: Any) -> Any:
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    if isinstance(value, dict):
        return {key: _stripped(item) for key, item in value.items() if item is not None}
    return int(value) if isinstance(value, float) and value.is_integer() else value
