"""The tree of all values that were given, and where each came from. Later settings replace earlier ones."""

import re
from collections.abc import Callable
from typing import Any

from slimrl.config.base import Config
from slimrl.config.reading.nested import flatten
from slimrl.config.reading.schema import Path, Spec, below, spell, where
from slimrl.config.reading.sources import Setting, show
from slimrl.errors import UserError

Tree = dict[str, Any]
Origins = dict[Path, str]
MISSING = object()


def place(tree: Tree, origins: Origins, root: Spec, setting: Setting) -> None:
    """Merges one plain value into the tree, and records its origin."""
    # Descends key by key and creates the containers on the way; only the last key is set.
    node: Any = tree
    spec = root
    for depth, key in enumerate(setting.path):
        spec = below(spec, key) or spec
        held = get_value(node, key)
        is_last = depth == len(setting.path) - 1
        if not is_last and not isinstance(held, (dict, list)):  # nothing yet, or a plain value that is replaced
            held = _put(node, key, _start(spec), setting)
        elif is_last and setting.value == {} and isinstance(held, dict):
            return  # the header of a section that is there already: sections merge
        elif is_last:
            in_list = isinstance(node, list)
            _put(node, key, setting.value, setting)
            # What stood here and below is replaced, and so are the origins of its parts.
            for path, _ in flatten(held, setting.path):
                origins.pop(path, None)
            # The header of a section sets nothing by itself; an element of a list, even an empty one, does.
            if in_list or setting.value != {} or not spec.sections:
                origins[setting.path] = setting.origin
        node = held


def _start(spec: Spec) -> Any:
    """The content of a container before one element of it is set: the default of a list, else an empty section."""
    if not spec.is_list:
        return {}
    return [item.model_dump() if isinstance(item, Config) else item for item in spec.default or []]


def get_value(node: Any, key: str) -> Any:
    """The value under a key of a section or an index of a list; MISSING if there is none."""
    if isinstance(node, list):
        return node[int(key)] if key.isdecimal() and int(key) < len(node) else MISSING
    return node.get(key, MISSING)


def _put(node: Any, key: str, value: Any, setting: Setting) -> Any:
    """Sets a key of a section, or replaces or appends an element of a list. Returns the value. Raises UserError for an
    index beyond the end of the list."""
    if isinstance(node, list):
        if not key.isdecimal() or int(key) > len(node):
            raise UserError(
                f"{where(setting.path, setting.origin)}: found element {key}, expected a number up to {len(node)}, "
                "because the list goes no further."
            )
        node[int(key) : int(key) + 1] = [value]  # the slice is empty at the end, so that this appends
    else:
        node[key] = value
    return value


def leave_other_variant(
    tree: Tree, origins: Origins, root: Spec, setting: Setting, note: Callable[[str], None]
) -> None:
    """Removes from the tree what a new `type` of a section has no use for, if another source had set it, and says so:
    `--data.type file` takes the place of a file's `type = "expert"` with all that belongs to it."""
    section = setting.path[:-1]
    spec: Spec | None = root
    for key in section:
        spec = below(spec, key) if spec else None
    held = get_tree(tree, section)
    if setting.path[-1:] != ("type",) or spec is None or len(spec.sections) < 2 or not isinstance(held, dict):
        return
    chosen = [one for one in spec.sections if setting.value == one.model_fields["type"].default]
    for key in [key for key in held if chosen and key not in chosen[0].model_fields]:
        path = (*section, key)
        found = [(at, origin) for at, origin in origins.items() if at[: len(path)] == path]
        if all(_source(origin) != _source(setting.origin) for _, origin in found):
            del held[key]
            for at, _ in found:
                del origins[at]
            where_set = found[0][1] if found else "default"
            note(
                f"{setting.origin} = {show(setting.value)}: {spell(path)} ({where_set}) falls away, because it is for "
                f"another {spell(setting.path)}"
            )


def get_tree(tree: Tree, path: Path) -> Any:
    """The value at a path; MISSING if there is none."""
    value: Any = tree
    for key in path:
        value = get_value(value, key) if isinstance(value, (dict, list)) else MISSING
    return value


def _source(origin: str) -> str:
    """The source of a value: its file without the line, or what all flags or all variables are to one another."""
    return "flags" if origin.startswith("--") else re.sub(r":\d+$", "", origin)
