"""Writes nested settings as the text of a TOML file."""

from collections.abc import Iterator, Mapping
from typing import Any

from slimrl.config.reading.saved import toml_key, toml_literal


def toml_lines(tree: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """Yield a line for each setting, with its dotted key, which starts with `name`. A list is one setting.

    >>> list(toml_lines({"a": 1, "b": {"c": [2]}, "d": [{"e": "f"}]}))
    ['a = 1', 'b.c = [2]', 'd = [{e = "f"}]']
    """
    for key, value in tree.items():
        place = f"{name}{toml_key(key)}"
        if isinstance(value, Mapping) and value:
            yield from toml_lines(value, f"{place}.")
        else:
            yield f"{place} = {toml_literal(value)}"
