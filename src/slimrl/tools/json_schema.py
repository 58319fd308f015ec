"""Checks a value against a JSON schema, as far as arguments of tools need it.

The check supports types, `enum`, `const`, `anyOf`, `oneOf`, `allOf`, items, properties, bounds and local references. It
ignores other keywords of a schema: the tool itself must check their values.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 32
KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
# The bounds of a schema. Each has a function that compares a number with the bound, and its words in a message.
BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "maximum": (operator.le, "at most"),
    "exclusiveMinimum": (operator.gt, "above"),
    "exclusiveMaximum": (operator.lt, "below"),
}
LENGTHS = {"minLength": "minimum", "maxLength": "maximum", "minItems": "minimum", "maxItems": "maximum"}


def mistake_of(value: Any, schema: Any, root: Any = None, depth: int = MAX_DEPTH) -> str:
    """Return a description of the mistake in a value, to append to the value's name; an empty text for a valid value.
    Local references are resolved in `root` (None: `schema` itself), and at most `depth` levels are checked.

    >>> mistake_of("3", {"type": "integer"}), mistake_of([1, "x"], {"type": "array", "items": {"type": "integer"}})
    ("must be an integer, not '3'", "must have at 1 what is valid: it must be an integer, not 'x'")
    """
    root = schema if root is None else root
    if depth == 0 or not isinstance(schema, Mapping):
        return ""
    if isinstance(reference := schema.get("$ref"), str):
        return mistake_of(value, _local(root, reference), root, depth - 1)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        return f"must be {' or '.join(_with_article(kind) for kind in kinds)}, not {value!r:.80}"
    if "const" in schema and value != schema["const"]:
        return f"must be {schema['const']!r:.80}, not {value!r:.80}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(f'{one!r:.40}' for one in schema['enum'][:20])}, not {value!r:.80}"
    for name in ("anyOf", "oneOf"):
        if (ways := schema.get(name)) and all(wrong := [mistake_of(value, way, root, depth - 1) for way in ways]):
            return wrong[0]
    for part in schema.get("allOf", ()):
        if wrong_part := mistake_of(value, part, root, depth - 1):
            return wrong_part
    return _mistake_of_bounds(value, schema) or _inner_mistake(value, schema, root, depth)


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind not in KINDS or isinstance(value, KINDS[kind])


def _with_article(kind: str) -> str:
    return kind if kind == "null" else f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def _local(root: Any, reference: str) -> Any:
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _mistake_of_bounds(value: Any, schema: Mapping[str, Any]) -> str:
    if isinstance(value, (str, list)):
        for name, kind in LENGTHS.items():
            belongs = name.endswith("Length") == isinstance(value, str)
            if belongs and isinstance(bound := schema.get(name), int) and not BOUNDS[kind][0](len(value), bound):
                return f"must have a length of {BOUNDS[kind][1]} {bound}, not {len(value)}"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        for name, (holds, words) in BOUNDS.items():
            if isinstance(bound := schema.get(name), (int, float)) and not holds(value, bound):
                return f"must be {words} {bound}, not {value!r:.80}"
    return ""


def _inner_mistake(value: Any, schema: Mapping[str, Any], root: Any, depth: int) -> str:
    """Return a description of the mistake within a list or an object; an empty text if its content is valid."""
    if isinstance(value, list):
        inner = [(str(place), item, schema.get("items")) for place, item in enumerate(value)]
    elif isinstance(value, dict):
        known = schema.get("properties") or {}
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            return f"must have `{missing[0]:.80}`"
        more = schema.get("additionalProperties", True)
        if more is False and (unknown := [name for name in value if name not in known]):
            return f"must not have `{unknown[0]:.80}`"
        inner = [(name, item, known.get(name, more)) for name, item in value.items()]
    else:
        return ""
    for name, item, kind in inner:
        if wrong := mistake_of(item, kind, root, depth - 1):
            return f"must have at {name:.80} what is valid: it {wrong}"
    return ""
