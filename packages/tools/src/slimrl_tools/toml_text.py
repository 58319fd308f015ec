"""Writes nested data as the text of a TOML file."""

from collections.abc import Iterator, Mapping
from typing import Any

from slimrl.config.reading.saved import toml_key, toml_literal


def toml_lines(tree: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Yield the lines of a section: first its plain values, then its inner sections with headers that start with
    `name`.

    A list of dictionaries becomes a list of sections. A dictionary whose keys are all numbers counts as a list.

    >>> list(toml_lines({"a": 1, "b": {"c": [2]}, "d": [{"e": "f"}]}))
    ['a = 1', '', '[b]', 'c = [2]', '', '[[d]]', 'e = "f"']
    """
    inner = {key: _sections(value) for key, value in tree.items()}
    for key, value in tree.items():
        if inner[key] is None:
            yield f"{toml_key(key)} = {toml_literal(value)}"
    for key, found in inner.items():
        place = f"{name}{toml_key(key)}"
        if isinstance(found, list):
            for item in found:
                yield from ("", f"[[{place}]]", *toml_lines(item, f"{place}."))
        elif found is not None:
            has_values = any(_sections(value) is None for value in found.values())
            yield from ("", f"[{place}]") if has_values else ()
            yield from toml_lines(found, f"{place}.")


def _sections(value: Any) -> list[Any] | dict[str, Any] | None:
    """Convert a value to a list of sections or to one section. Return None for a plain value."""
    if isinstance(value, dict) and value:
        is_list = all(key.isdecimal() for key in value)
        return [value[key] for key in sorted(value, key=int)] if is_list else value
    return value if isinstance(value, list) and value and all(isinstance(one, dict) for one in value) else None
