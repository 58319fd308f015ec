"""Merges settings into nested data. A later setting replaces an earlier setting."""

from collections.abc import Callable
from typing import Any

from slimrl.config.reading.formats import flatten
from slimrl.config.reading.schema import Path, Spec, below, describe, find, locate, spell, where
from slimrl.config.reading.sources import Setting, read_value, show
from slimrl.errors import UserError


class Tree:
    """The merged settings. `values` is nested data for pydantic. `given` maps the path of each set value to its
    setting. `note` logs each setting that removes values of other settings."""

    def __init__(self, root: Spec, note: Callable[[str], None]) -> None:
        self.root = root
        self.values: dict[str, Any] = {}
        self.given: dict[Path, Setting] = {}
        self._note = note

    def add(self, setting: Setting) -> None:
        """Merge a setting into the tree. The text of a flag or variable is converted first.

        Raise UserError for an index beyond the end of a list, for a setting that a file has twice, and for a value that
        is never allowed (see `_check_kind`).
        """
        spec = find(self.root, setting.path)  # pydantic reports an unknown key later
        value = setting.value
        if setting.kind != "file":
            value = read_value(setting, locate(self.root, setting.path, setting.origin))
        for path, part in flatten(_write_out(value, spec) if spec else value, setting.path):
            self._check_kind(path, part, setting.origin)
            self._place(Setting(path, part, setting.origin, setting.kind))

    def get(self, path: Path) -> Any:
        """Return the value at a path; None if no value is set."""
        node: Any = self.values
        for key in path:
            node = node.get(key) if isinstance(node, dict) else _element(node, key)
        return node

    def origin_of(self, path: Path) -> str:
        """Return the origin of the value at `path`. If the value was not set itself, return the origin of the nearest
        container that was set, or else of the first entry in the value, or else "default"."""
        around = [self.given[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.given]
        inside = [setting for key, setting in self.given.items() if key[: len(path)] == path]
        return next((setting.origin for setting in around + inside), "default")

    def _check_kind(self, path: Path, value: Any, origin: str) -> None:
        """Raise UserError for a value that is never allowed: null, a date, or an integer with more than 64 bits."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise UserError(f"{where(path, origin)}: found an integer of more than 64 bits, which none has.")
        if not isinstance(value, (str, int, float, list, dict)):
            found = "nothing" if value is None else f"{value}, a {type(value).__name__}"
            expected = describe(locate(self.root, path, origin))
            raise UserError(f"{where(path, origin)}: found {found}, expected {expected}.")

    def _place(self, setting: Setting) -> None:
        """Set a plain value, or start a section or a list."""
        *above, last = setting.path
        spec: Spec = self.root
        node: Any = self.values
        for end, key in enumerate(above, start=1):
            spec = below(spec, key) or spec
            child = self.get(setting.path[:end])
            if not isinstance(child, (dict, list)):  # nothing yet, or a plain value that is replaced
                # Before one element of a list is set, fill in the list's default.
                child = [*(spec.default or [])] if spec.is_list else {}
                _set(node, key, child, setting)
            node = child
        held, before = self.get(setting.path), self.given.get(setting.path)
        if setting.value == {} and isinstance(held, dict):
            return  # the header of a section that exists already: sections are merged
        if before and before.kind == "file" and before.source == setting.source and before.origin != setting.origin:
            raise UserError(
                f"{where(setting.path, setting.origin)}: is set in {before.origin}, too, maybe under another name. "
                "Remove one of the two."
            )
        if last == "type" and len(spec.sections) > 1:
            self._leave_other_variant(setting, spec, node)
        self._forget(setting.path, held)
        _set(node, last, setting.value, setting)
        # The header of a section does not set a value. But an element of a list is a value, even if it is empty.
        target = below(spec, last)
        if setting.value != {} or not (target and target.sections) or isinstance(node, list):
            self.given[setting.path] = setting

    def _forget(self, path: Path, held: Any) -> None:
        """Forget the settings of the value `held` at a path, and of everything inside it."""
        self.given.pop(path, None)
        if isinstance(held, (dict, list)):
            self.given = {one: setting for one, setting in self.given.items() if one[: len(path)] != path}

    def _leave_other_variant(self, setting: Setting, spec: Spec, section: dict[str, Any]) -> None:
        """If `setting` selects another `type` of its section, remove values from other sources that this type does not
        have, and log this. For example, `--data.type file` removes the settings of `type = "expert"` that a file has.
        """
        chosen = [one for one in spec.sections if one.model_fields["type"].default == setting.value]
        for key in [key for key in section if chosen and key not in chosen[0].model_fields]:
            path = (*setting.path[:-1], key)
            given = [one for inside, one in self.given.items() if inside[: len(path)] == path]
            if setting.source in [one.source for one in given]:
                continue  # one source contradicts itself, which pydantic reports
            self._note(
                f"{setting.origin} = {show(setting.value)}: {spell(path)} ({[*given, setting][0].origin}) falls away, "
                f"because it is for another {spell(setting.path)}"
            )
            self._forget(path, section.pop(key))


def _write_out(value: Any, spec: Spec) -> Any:
    """Expand a short form to the full value. For example, `--env reverse-text` becomes `[{id = "reverse-text"}]`, and a
    number becomes a list with one element."""
    shorthand = spec.item.sections[0].shorthand if len(spec.item.sections) == 1 else ""
    is_name = isinstance(value, str) and value[:1] not in ("[", "{", "") and bool(shorthand)
    if spec.is_list:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and spec.is_list_of_numbers
        items = [value] if is_name or is_number else value
        return [_write_out(one, spec.item) for one in items] if isinstance(items, list) else items
    return {shorthand: value} if is_name else value


def _element(node: Any, key: str) -> Any:
    """Return the element of a list with the index `key`; None if the list does not have this index."""
    has = isinstance(node, list) and key.isdecimal() and len(key) < 9 and int(key) < len(node)
    return node[int(key)] if has else None


def _set(node: dict[str, Any] | list[Any], key: str, value: Any, setting: Setting) -> None:
    """Set a value in a section or a list. Raise UserError for an index beyond the end of a list."""
    if isinstance(node, dict):
        node[key] = value
    elif key == str(len(node)):
        node.append(value)
    elif key.isdecimal() and len(key) < 9 and int(key) < len(node):
        node[int(key)] = value
    else:
        raise UserError(
            f"{where(setting.path, setting.origin)}: found element {key}, expected a number up to {len(node)}, because "
            "the list goes no further."
        )
