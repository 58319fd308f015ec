"""Reads the result of an MCP tool as a text. Independent of servers and of the package `mcp`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def read_content(content: Sequence[Any], structured: object) -> str:
    """Return the text of a result: the texts of its parts, and its structured content as JSON if no part has a text.

    >>> read_content([{"type": "text", "text": ""}], {"t": 21.5}), read_content([{"type": "text", "text": "21.5"}], {})
    ('{"t": 21.5}', '21.5')
    """
    parts = [part for part in content if isinstance(part, Mapping)]
    texts = [_part_text(part) for part in parts]
    if structured is not None and not any(str(part.get("text", "")).strip() for part in parts):
        texts = [*filter(str.strip, texts), json.dumps(structured, ensure_ascii=False)]
    return "\n".join(texts)


def _part_text(part: Mapping[str, Any]) -> str:
    """Return a part of a result as text. A link is its name and address; other parts without text are named by kind."""
    match part:
        case {"text": str(text)}:
            return text
        case {"type": "resource", "resource": {**resource}}:
            return str(resource.get("text") or f"[resource {resource.get('uri')}]")
        case {"type": "resource_link"}:
            about = f": {part['description']}" if part.get("description") else ""
            return f"[{part.get('title') or part.get('name')}]({part.get('uri')}){about}"
    return f"[{part.get('type')}]"
