"""The values of all settings, and their origins. A later setting replaces an earlier setting."""

import re
from collections.abc import Callable
from typing import Any

from slimrl.config.reading.formats import flatten
from slimrl.config.reading.schema import Path, Spec, below, find, spell, where
from slimrl.config.reading.sources import Setting, show
from slimrl.errors import UserError


class Tree:
    """The values by path, and their origins. A section or a list is an empty dict or list, followed by its contents.
    `note` receives a line if a setting removes values of other settings."""

    def __init__(self, root: Spec, note: Callable[[str], None]) -> None:
        self.values: dict[Path, Any] = {(): {}}
        self.origins: dict[Path, str] = {}
        self._root = root
        self._note = note

    def place(self, setting: Setting) -> None:
        """Set a plain value, or start a section or a list. Raise UserError for an index beyond the end of a list."""
        if setting.path[-1] == "type":
            self._leave_other_variant(setting)
        spec = self._root
        for end, key in enumerate(setting.path, start=1):
            path = setting.path[:end]
            spec = below(spec, key) or spec
            self._check_index(path, setting)
            held = self.values.get(path)
            if path == setting.path:
                self._set(setting, spec)
            elif not isinstance(held, (dict, list)):  # nothing yet, or a plain value that is replaced
                # Before one element of a list is set, fill in the list's default.
                self.values |= flatten(spec.default or [] if spec.is_list else {}, path)

    def _set(self, setting: Setting, spec: Spec) -> None:
        path, value = setting.path, setting.value
        held = self.values.get(path)
        if value == {} and isinstance(held, dict):
            return  # the header of an existing section: sections merge
        if isinstance(held, (dict, list)):
            self._clear(path)
        self.values[path] = value
        self.origins.pop(path, None)
        # The header of a section sets nothing by itself; an element of a list sets something, even if it is empty.
        if value != {} or not spec.sections or isinstance(self.values[path[:-1]], list):
            self.origins[path] = setting.origin

    def _clear(self, path: Path) -> None:
        """Remove everything below a path."""
        for entries in (self.values, self.origins):
            for inside in [one for one in entries if len(one) > len(path) and one[: len(path)] == path]:
                del entries[inside]

    def _check_index(self, path: Path, setting: Setting) -> None:
        parent, key = path[:-1], path[-1]
        if path in self.values or not isinstance(self.values[parent], list) or key == "0":
            return
        if not key.isdecimal() or (*parent, str(int(key) - 1)) not in self.values:
            length = sum(one[:-1] == parent for one in self.values if one)
            raise UserError(
                f"{where(setting.path, setting.origin)}: found element {key}, expected a number up to {length}, "
                "because the list goes no further."
            )

    def _leave_other_variant(self, setting: Setting) -> None:
        """If `setting` chooses another `type` of its section, remove the values from other sources that this type does
        not have, and log that: `--data.type file` replaces a file's `type = "expert"` together with its settings."""
        section = setting.path[:-1]
        spec = find(self._root, section)
        variants = spec.sections if spec else ()
        chosen = [one for one in variants if setting.value == one.model_fields["type"].default]
        for path in [one for one in self.values if one and one[:-1] == section] if chosen and variants[1:] else ():
            origins = [origin for one, origin in self.origins.items() if one[: len(path)] == path]
            if path[-1] in chosen[0].model_fields or source_of(setting.origin) in map(source_of, origins):
                continue
            self._clear(path)
            del self.values[path]
            self.origins.pop(path, None)
            self._note(
                f"{setting.origin} = {show(setting.value)}: {spell(path)} ({[*origins, 'default'][0]}) falls away, "
                f"because it is for another {spell(setting.path)}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the values as nested data."""
        nodes: dict[Path, Any] = {}
        for path, value in self.values.items():
            nodes[path] = type(value)() if isinstance(value, (dict, list)) else value
            match nodes.get(path[:-1]) if path else None:
                case list() as items:
                    items.append(nodes[path])
                case dict() as section:
                    section[path[-1]] = nodes[path]
        return dict(nodes[()])


def source_of(origin: str) -> str:
    """Return the source of a value: its file without the line, or one name for all flags or for all variables."""
    return "flags" if origin.startswith("--") else re.sub(r":\d+$", "", origin)
