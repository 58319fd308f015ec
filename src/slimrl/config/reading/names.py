"""The names that a command accepts for its settings: present names, synonyms, old names, and the names of other
trainers (`slimrl.dialects`). If an old name is used, a line on stderr shows the present name.

The tables below define slimrl's own synonyms and old names. A setting that was read under such a name keeps its origin,
so that errors show the line or flag as the user wrote it.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from slimrl.config.base import CommandConfig
from slimrl.config.reading.schema import Path, Spec, find, spec_of, spell
from slimrl.config.reading.sources import Setting
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, visible
from slimrl.io.secrets import redact
from slimrl.plugins import DIALECTS, load_all

OLD_NAMES: dict[str, Mapping[Path, Path]] = {
    "rl": {("deployment", "sampler_restarts"): ("deployment", "restarts")},
    "eval": {(name,): ("sampling", name) for name in ("max_tokens", "stop", "top_p", "top_k", "min_p")},
}

# Two correct names for one setting: no line is printed. A longer name must precede its own prefix.
SYNONYMS: Mapping[Path, Path] = {
    ("trainer", "model", "lora", "target_modules"): ("model", "lora", "targets"),
    ("trainer", "model", "lora"): ("model", "lora"),
    ("model", "lora", "target_modules"): ("model", "lora", "targets"),
}

# Synonyms of one command: `check` accepts settings of its first environment at the top level, as `play` does.
SYNONYMS_OF: dict[str, Mapping[Path, Path]] = {
    "check": {(name,): ("env", "0", name) for name in ("args", "worker")},
}


IsKnown = Callable[[Path], bool]  # returns True if slimrl has a setting at a path


class Translation(Protocol):
    """The settings of a source, translated to slimrl's names."""

    @property
    def settings(self) -> Sequence[Setting]: ...

    @property
    def impossible(self) -> Sequence[str]:
        """A line about each key that slimrl does not support."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report on the translation, one line per key."""

    def refuse_impossible(self, name: str) -> None:
        """Raise UserError if slimrl does not support some keys of the source called `name`."""


class Dialect(Protocol):
    """The names of another trainer's settings. An entry of `slimrl.dialects` provides a dialect."""

    @property
    def name(self) -> str:
        """The trainer's name."""

    def has(self, command: str, path: Path) -> bool:
        """Return True if the trainer has a setting at the path, for a command of slimrl."""

    def has_plain(self, path: Path) -> bool:
        """Return True if the trainer has a plain value at the path, but slimrl has a section there."""

    def is_foreign(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> bool:
        """Return True if a source is written for the trainer."""

    def translate(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> Translation:
        """Translate the settings of a source to slimrl's names. Call this only if `is_foreign` is True for the
        source."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one command's settings. `note` receives lines about old names and about names of other trainers."""

    command: str
    root: Spec
    note: Callable[[str], None]
    dialects: Sequence[Dialect] = ()

    def of(self, config_class: type[CommandConfig]) -> "Names":
        """Return the names of another command's settings."""
        return replace(self, command=config_class.command, root=spec_of(config_class))

    def current(self, path: Path) -> Path:
        """Return the path under its present name. A path with another trainer's name is returned unchanged."""
        return current_path(self.command, path)

    def is_known(self, path: Path) -> bool:
        """Return True if slimrl has a setting at the path, under the present name, a synonym or an old name."""
        return find(self.root, self.current(path)) is not None

    def is_foreign(self, path: Path) -> bool:
        """Return True if another trainer has the path and slimrl does not."""
        return not self.is_known(path) and any(dialect.has(self.command, path) for dialect in self.dialects)

    def has_plain(self, path: Path) -> bool:
        """Return True if another trainer has a plain value at the path, but slimrl has a section there."""
        return any(dialect.has_plain(path) for dialect in self.dialects)

    def translate(self, source: Sequence[Setting]) -> list[Setting]:
        """Return the settings of one source (a file, the flags, the variables) under their present names.

        Raise UserError if the source has a setting under two names, if it is a file of another command, or if it is
        written for another trainer and has a key that slimrl does not support.
        """
        foreign = (dialect for dialect in self.dialects if dialect.is_foreign(source, self.command, self.is_known))
        if (dialect := next(foreign, None)) is None:
            self._refuse_file_of_another(source)
        else:
            translation = dialect.translate(source, self.command, self.is_known)
            subject = _subject(source)
            if translation.impossible:
                self._refuse_file_of_another(source)
            translation.refuse_impossible(subject)
            self.note(f"{subject} has names of {dialect.name}'s, and is read so:")
            for line in translation.lines():
                self.note(f"  {line}")
            source = translation.settings
        return rename(self.command, source, self.note)

    def _refuse_file_of_another(self, source: Sequence[Setting]) -> None:
        """Raise UserError if a file has settings that are unknown to this command, and another command knows all its
        settings."""
        strange = sorted({one.path[0] for one in source if one.kind == "file" and not self.is_known(one.path[:1])})
        for name, config_class in COMMANDS.items() if strange else ():
            other = self.of(config_class)
            if all(other.is_known(one.path) for one in source):
                raise UserError(
                    f"{_subject(source)} is a settings file of `slimrl {name}`: of `slimrl {self.command}` there is no "
                    f"setting {', '.join(f'`{key}`' for key in strange)}. Start `slimrl {name} @ {_subject(source)}`, "
                    f"or name a file of `slimrl {self.command}`."
                )


def names_of(config_class: type[CommandConfig], note: Callable[[str], None]) -> Names:
    """Return the names of a command's settings."""
    dialects: list[Dialect] = load_all(DIALECTS, "the dialect", note)
    return Names(config_class.command, spec_of(config_class), note, dialects)


def current_path(command: str, path: Path) -> Path:
    """Return the present name of the path."""
    other, present = _other_name(command, path)
    return (*present, *path[len(other) :])


def rename(command: str, source: Sequence[Setting], note: Callable[[str], None]) -> list[Setting]:
    """Return the settings of one source (a file, the flags, the variables) under their present names. `note` receives a
    line if the source has old names.

    Raise UserError if the source has a setting under two names, because the user could mean either value.
    """
    used = [setting for setting in source if _other_name(command, setting.path)[0]]
    for setting in used:
        present = current_path(command, setting.path)
        for other in source:
            # A whole section, as in `--sampling '{top_k = 5}'`, sets the setting, too; a section's header does not.
            shared = min(len(present), len(other.path))
            if other not in used and present[:shared] == other.path[:shared] and other.value != {}:
                raise UserError(
                    f"{spell(setting.path)} ({setting.origin}) is another name of {spell(present)}, and "
                    f"{spell(other.path)} ({other.origin}) is set beside it. Remove one of the two."
                )
    if old := [setting for setting in used if _other_name(command, setting.path)[0] in OLD_NAMES.get(command, {})]:
        note(_advice(command, old))
    # Drop the header `[trainer.model]` around the synonym `lora`: no such section exists.
    headers = {other[:end] for other in SYNONYMS for end in range(1, len(other))}
    settings = [setting for setting in source if setting.value != {} or setting.path not in headers]
    return [replace(setting, path=current_path(command, setting.path)) for setting in settings]


def _other_name(command: str, path: Path) -> tuple[Path, Path]:
    """Return the synonym or old name at the start of a path, and the present name; two empty paths if there is none."""
    tables = SYNONYMS, SYNONYMS_OF.get(command, {}), OLD_NAMES.get(command, {})
    names = (pair for table in tables for pair in table.items())
    return next((pair for pair in names if path[: len(pair[0])] == pair[0]), ((), ()))


def _advice(command: str, used: Sequence[Setting]) -> str:
    """Return one line with the present names, in the spelling of the source: as flags, variables or keys of a file."""
    words = []
    for setting in used:
        old, new = map(spell, _other_name(command, setting.path))
        if setting.kind == "variable":
            prefix = setting.origin.partition("_")[0]
            old, new = (f"{prefix}_{name.replace('.', '__').upper()}" for name in (old, new))
        dashes = "--" if setting.kind == "flag" else ""
        words.append(f"{dashes}{new} for {dashes}{old}")
    is_file = used[0].kind == "file" and not used[0].origin.endswith("=")  # a keyword of the Python API has `key =`
    where = re.sub(r":\d+$", "", used[0].origin) + ": " if is_file else ""
    return f"{where}old names that still read; write {', '.join(dict.fromkeys(words))}"


def print_note(text: str) -> None:
    """Print one line on stderr, separate from a command's output."""
    print(redact(visible(f"slimrl: {text}")), file=sys.stderr)


def _subject(source: Sequence[Setting]) -> str:
    """Return the name of a source of settings for messages: its file, the command line or the environment."""
    match source[0].kind:
        case "file":
            return re.sub(r":\d+$", "", source[0].origin)
        case "flag":
            return "the command line"
        case _:
            return "the environment"
