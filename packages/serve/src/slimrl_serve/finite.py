"""Finds JSON schemas that no finite value obeys, such as a node that needs a next node: a reply would never end."""

from collections.abc import Mapping
from typing import Any

MAX_DEFINITIONS = 100  # of a schema that is looked at


def has_finite_value(schema: Mapping[str, Any]) -> bool:
    """Return False if each value of the schema contains another one of its kind. Other contradictions are not found.

    The definitions that have a finite value are found one after the other: first those that need no other one.
    """
    tables = [schema.get(key) for key in ("$defs", "definitions")]
    definitions = {
        f"#/{key}/{name}": part
        for key, table in zip(("$defs", "definitions"), tables, strict=True)
        if isinstance(table, Mapping)
        for name, part in table.items()
    }
    definitions["#"] = schema
    if len(definitions) > MAX_DEFINITIONS:
        return True
    finite: set[str] = set()
    try:
        while found := {
            name for name in definitions.keys() - finite if _is_finite(definitions[name], definitions, finite)
        }:
            finite |= found
    except RecursionError:  # it is refused as too deep when it is compiled
        return True
    return "#" in finite


def _is_finite(schema: Any, definitions: Mapping[str, Any], finite: set[str]) -> bool:
    """Whether a value of the schema needs values of the `finite` definitions only."""
    if not isinstance(schema, Mapping) or "const" in schema or "enum" in schema:
        return True

    def is_finite(part: Any) -> bool:
        return _is_finite(part, definitions, finite)

    reference = schema.get("$ref")
    if isinstance(reference, str) and reference in definitions and reference not in finite:
        return False
    options = [schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
    every = schema.get("allOf")
    if not all(any(map(is_finite, parts)) for parts in options) or not all(map(is_finite, every or ())):
        return False
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("type") == "object" and isinstance(properties, Mapping) and isinstance(required, list):
        return all(is_finite(properties.get(name)) for name in required if isinstance(name, str))
    least, prefix = schema.get("minItems"), schema.get("prefixItems")
    if schema.get("type") == "array" and isinstance(least, int):
        fixed = prefix if isinstance(prefix, list) else []
        return all(map(is_finite, fixed[:least])) and (least <= len(fixed) or is_finite(schema.get("items")))
    return True
