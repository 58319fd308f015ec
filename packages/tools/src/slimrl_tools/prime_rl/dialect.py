"""Translates prime-rl's settings files key by key. slimrl reads them as a dialect of its settings
(`config/reading/names.py`).

The report of a translation lists every key of the file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slimrl.config.reading.names import IsKnown
from slimrl.config.reading.schema import Path, spec_of, spell
from slimrl.config.reading.sources import Setting, read_value, show
from slimrl.errors import UserError
from slimrl_tools.prime_rl.keys import CONTENT, RL_KEYS, SFT_KEYS, Table, find_outcome, is_listed
from slimrl_tools.prime_rl.values import Outcome, name_of

LISTS = {
    "taken": "taken as it is",
    "renamed": "renamed",
    "not_needed": "not needed here",
    "impossible": "cannot be done",
    "left_open": "not in the file, and another default here",
}  # the lists of a report, and their titles
OWNED = re.compile(r"[\w.-]+/[\w.@-]+")  # the id of an environment with its owner: OWNER/NAME
TABLES: Mapping[str, Table] = {"rl": RL_KEYS, "probe": RL_KEYS, "sft": SFT_KEYS}
# Sections of slimrl for which prime-rl also takes a plain value: a model's name, or `--ckpt` to turn checkpoints on.
SECTIONS_AS_VALUES = (("model",), ("ckpt",), ("wandb",))
UNKNOWN = "neither slimrl nor this translation knows this key"


@dataclass(frozen=True, slots=True)
class Translation:
    """The result of a translation. `settings` are the settings for slimrl. `report` has a line for each key of the
    file, grouped by the names in `LISTS`."""

    command: str
    settings: Sequence[Setting]
    report: Mapping[str, Sequence[str]]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the report: the lists that are not empty, each under its title."""
        for name, title in LISTS.items():
            if entries := self.report[name]:
                yield f"{title}:"
                yield from (f"  {entry}" for entry in entries)

    def refuse_impossible(self, name: str) -> None:
        """Raise UserError with a list of the impossible keys, if there are any. `name` is the file's name in the
        message."""
        if impossible := self.report["impossible"]:
            entries = "\n".join(f"- {entry}" for entry in impossible)
            raise UserError(
                f"{name} has names of prime-rl's, and asks for what slimrl cannot do:\n{entries}\n"
                "Remove these keys, or change them."
            )


class PrimeRL:
    """The reader of prime-rl's settings. It recognises and translates all three dialects."""

    name = "prime-rl"

    def has(self, command: str, path: Path) -> bool:
        """Return True if prime-rl has a setting at the path."""
        return is_listed(TABLES.get(command, {}), path)

    def has_plain(self, path: Path) -> bool:
        """Return True if prime-rl takes a plain value at the path, where slimrl has a section."""
        return path in SECTIONS_AS_VALUES

    def is_foreign(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> bool:
        """Return True if a file is for prime-rl. There are three signs: a key that only prime-rl has, an environment's
        id with an owner, and a plain value where slimrl has a section."""
        return command in TABLES and any(
            (not is_known(one.path) and self.has(command, one.path))
            or ("env" in one.path and one.path[-1] == "id" and OWNED.fullmatch(str(one.value)))
            or (self.has_plain(one.path) and not isinstance(one.value, (dict, list)))
            for one in whole_values(source)
        )

    def translate(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> Translation:
        """Translate a file for which `is_foreign` is True. A key that neither slimrl nor the table knows is
        impossible."""
        values = list(whole_values(source))
        file = {one.path: one.value for one in values}
        # A value that is not converted keeps the text of its command-line flag, because `123` may be a name.
        texts = {one.path: one for one in source if one.kind != "file"}
        settings: list[Setting] = []
        report: dict[str, list[str]] = {name: [] for name in LISTS}
        for one in values:
            name = f"{name_of(one.path)} = {show(one.value)}" if one.value != {} else f"[{name_of(one.path)}]"
            outcome = find_outcome(TABLES[command], one.path, one.value, file)
            if outcome is None and not is_known(one.path):
                outcome = Outcome("impossible", UNKNOWN)
            if outcome is None or (outcome.path, outcome.value) == (one.path, one.value):
                settings.append(texts.get(one.path, one))
                report["taken"].append(name)
            elif outcome.kind == "renamed":
                path, value = outcome.path, outcome.value
                is_text = value is one.value and one.path in texts
                new = replace(texts[one.path], path=path) if is_text else Setting(path, value, one.origin)
                settings.append(new)
                note = f" ({outcome.why})" if outcome.why else ""
                report["renamed"].append(f"{name} -> {spell(path)} = {show(value)}{note}")
            else:
                at = f" ({one.origin})" if outcome.kind == "impossible" else ""
                report[outcome.kind].append(f"{name}{at}: {outcome.why}")
        settings += _additions(settings)
        if source[0].kind == "file":  # flags and environment variables never contain all settings
            report["left_open"] = _left_open(settings, "sft" if command == "sft" else "rl")
        return Translation(command, settings, report)


PRIME_RL = PrimeRL()


def _left_open(settings: Sequence[Setting], kind: str) -> list[str]:
    """Return a line for each omitted setting whose defaults differ in prime-rl and in slimrl. `kind` is `rl` or
    `sft`."""
    given, defaults = {spell(one.path) for one in settings}, CONTENT["defaults"][kind]
    return [f"{key}: {theirs} there, {ours} here" for key, (theirs, ours) in defaults.items() if key not in given]


def whole_values(source: Sequence[Setting]) -> Iterator[Setting]:
    """Yield the settings of a source. A list of plain values is one setting, and an empty section is a setting, too.

    The text of a flag or of an environment variable is parsed as a literal.
    """
    below: dict[Path, list[Setting]] = {}
    for one in source:
        below.setdefault(one.path[:-1], []).append(one)
    inside: set[Path] = set()
    for one in source:
        children = below.get(one.path, [])
        if one.path in inside or (one.value == {} and children):
            continue
        if one.value == [] and children:
            if any(child.value in ({}, []) for child in children):
                continue  # a list of sections: each section is translated separately
            inside |= {child.path for child in children}
            yield replace(one, value=[child.value for child in children])
        else:
            yield one if one.kind == "file" else replace(one, value=read_value(one, spec_of(Any)), kind="file")


def _additions(settings: Sequence[Setting]) -> list[Setting]:
    """Return the missing settings that other settings imply: the type of a teacher, the type of data, and an adapter's
    rank."""
    keys = {one.path: one for one in settings}
    implied: dict[Path, tuple[Path, Any]] = {
        ("data", "name"): (("data", "type"), "hub"),
        ("teacher", "name"): (("teacher", "type"), "model"),
        ("teacher", "base_url"): (("teacher", "type"), "server"),
    }
    found = {path: (value, because) for because, (path, value) in implied.items() if because in keys}
    if lora := next((path for path in keys if path[:2] == ("model", "lora")), None):
        found["model", "lora", "rank"] = (16, lora)  # prime-rl's default in files and in hosted runs
    return [Setting(path, value, keys[because].origin) for path, (value, because) in found.items() if path not in keys]
