"""The names that a command accepts for its settings: current names, synonyms and earlier names in slimrl, and the names
of other trainers (`slimrl.dialects`).

A renamed setting keeps its origin, so that errors show the line or flag that the user wrote.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from slimrl import plugins
from slimrl.config.base import CommandConfig
from slimrl.config.reading.schema import Path, Spec, find, spec_of
from slimrl.config.reading.sources import Setting
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, visible
from slimrl.io.secrets import redact
from slimrl.plugins import DIALECTS, imported, load_all

# Synonyms of settings, and names of earlier versions, by command; "" is for all commands. A longer name must precede
# its prefix.
SYNONYMS: dict[str, dict[Path, Path]] = {
    "": {
        ("trainer", "model", "lora", "target_modules"): ("model", "lora", "targets"),
        ("trainer", "model", "lora"): ("model", "lora"),
        ("model", "lora", "target_modules"): ("model", "lora", "targets"),
    },
    "check": {(name,): ("env", "0", name) for name in ("args", "worker")},  # the first environment, as in `play`
    "eval": {(name,): ("sampling", name) for name in ("max_tokens", "stop", "top_p", "top_k", "min_p")},
    "rl": {("deployment", "sampler_restarts"): ("deployment", "restarts")},
}
# Settings of earlier versions that are gone, with the value at which they did nothing. Files of such runs have them.
# A path has no index of a list.
GONE: dict[Path, object] = {
    ("inference", "lookup_tokens"): 0,
    ("lookup_tokens",): 0,
    ("inference", "quantization"): "none",
    ("quantization",): "none",
    ("data", "form"): "auto",
    ("data", "skip_bad_rows"): False,
    ("trainer", "loss", "state_weight"): "preset",
    ("orchestrator", "env", "memory_gb"): 0.0,
    ("data", "env", "memory_gb"): 0.0,
    ("env", "memory_gb"): 0.0,
    ("deployment", "weights"): "files",
    ("monitors", "max_excess_duplicates"): 0.25,
    ("monitors", "min_spread_within"): 0.02,
    ("monitors", "right_metric"): "auto",
    ("monitors", "stop"): [],
    ("orchestrator", "max_rollouts_gb"): 20.0,
    ("teacher", "device"): "policy",
    ("tensorboard",): {},  # the section's header
    ("tensorboard", "enabled"): False,
    ("trackio",): {},
    ("trackio", "enabled"): "auto",
    ("trackio", "name"): "",
    ("trackio", "project"): "",
    ("warmup", "repeat"): False,
}
IsKnown = Callable[[Path], bool]  # a function that returns True if slimrl has a setting at a path


class Translation(Protocol):
    """The settings of one source (a file, the flags, the variables), translated to slimrl's names."""

    @property
    def settings(self) -> Sequence[Setting]: ...

    def lines(self) -> Iterator[str]:
        """Yield a line for each key of the source, about its translation."""

    def refuse_impossible(self, name: str) -> None:
        """Raise UserError if slimrl does not support a key of the source. The message calls the source `name`."""


class Dialect(Protocol):
    """The names of another trainer's settings. An entry of `slimrl.dialects` provides a dialect."""

    @property
    def name(self) -> str:
        """The trainer's name."""

    def has(self, command: str, path: Path) -> bool:
        """Return True if the trainer has a setting at the path. `command` is the command of slimrl that reads it."""

    def has_plain(self, path: Path) -> bool:
        """Return True if the trainer has a plain value at the path, but slimrl has a section there."""

    def is_foreign(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> bool:
        """Return True if a source has the trainer's names, not slimrl's names."""

    def translate(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> Translation:
        """Translate the settings of a source, for which `is_foreign` is True, to slimrl's names."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one command's settings. `note` receives lines about names of other trainers."""

    command: str
    root: Spec
    note: Callable[[str], None]
    dialects: Sequence[Dialect] = ()

    def of_commands(self) -> Iterator["Names"]:
        """Yield the names of all commands' settings."""
        for kind in settings_of_commands(self.note):
            yield replace(self, command=kind.command, root=spec_of(kind))

    def is_known(self, path: Path) -> bool:
        """Return True if slimrl has a setting at the path, with any of the setting's names."""
        return find(self.root, current_path(self.command, path)) is not None

    def is_foreign(self, path: Path) -> bool:
        """Return True if another trainer has a setting at the path, but slimrl does not."""
        return not self.is_known(path) and any(dialect.has(self.command, path) for dialect in self.dialects)

    def has_plain(self, path: Path) -> bool:
        """Return True if another trainer has a plain value at the path, but slimrl has a section there."""
        return any(dialect.has_plain(path) for dialect in self.dialects)

    def translate(self, source: Sequence[Setting]) -> list[Setting]:
        """Return the settings of one source (a file, the flags, the variables) with their current names.

        Raise UserError if the source is a settings file for another command. Also raise UserError if the source has
        another trainer's names and a key that slimrl does not support.
        """
        source = [one for one in source if not is_gone(one.path, one.value)]
        self._refuse_file_of_another(source)
        foreign = (dialect for dialect in self.dialects if dialect.is_foreign(source, self.command, self.is_known))
        if dialect := next(foreign, None):
            translation = dialect.translate(source, self.command, self.is_known)
            translation.refuse_impossible(source[0].source)
            self.note(f"{source[0].source} has names of {dialect.name}'s, and is read so:")
            for line in translation.lines():
                self.note(f"  {line}")
            # Several of its keys may become one setting; the last one counts.
            source = [*{setting.path: setting for setting in translation.settings}.values()]
        # Drop the header `[trainer.model]` around the synonym `lora`: no such section exists.
        headers = {other[:end] for other in SYNONYMS[""] for end in range(1, len(other))}
        settings = [setting for setting in source if setting.value != {} or setting.path not in headers]
        return [replace(setting, path=current_path(self.command, setting.path)) for setting in settings]

    def _refuse_file_of_another(self, source: Sequence[Setting]) -> None:
        """Raise UserError if a file belongs to another command: some of its settings are unknown to this command, but
        another command knows all of them."""
        strange = sorted({one.path[0] for one in source if one.kind == "file" and not self.is_known(one.path[:1])})
        for other in self.of_commands() if strange else ():
            if all(map(other.is_known, (one.path for one in source))):
                file, name = source[0].source, other.command
                raise UserError(
                    f"{file} is a settings file of `slimrl {name}`: of `slimrl {self.command}` there is no setting "
                    f"{', '.join(f'`{key}`' for key in strange)}. Start `slimrl {name} @ {file}`, or name a file of "
                    f"`slimrl {self.command}`."
                )


def is_gone(path: Path, value: object) -> bool:
    """Return True if an earlier version had the setting at `path`, and this value of it did nothing."""
    path = tuple(part for part in path if not part.isdecimal())
    return path in GONE and value == GONE[path]


def names_of(config_class: type[CommandConfig], note: Callable[[str], None]) -> Names:
    """Return the names of a command's settings."""
    dialects: list[Dialect] = load_all(DIALECTS, "the dialect", note)
    return Names(config_class.command, spec_of(config_class), note, dialects)


def settings_of_commands(note: Callable[[str], None]) -> Iterator[type[CommandConfig]]:
    """Yield the classes of all commands' settings. The core's classes precede those of other plug-ins, whose modules
    are imported only when the iteration reaches them."""
    yield from COMMANDS.values()
    for command in load_all(plugins.COMMANDS, "the command", note):
        if command.settings:
            yield imported(command.settings)


def current_path(command: str, path: Path) -> Path:
    """Return the setting's current path if `path` is an earlier name or a synonym; otherwise `path` itself."""
    for other, present in (SYNONYMS[""] | SYNONYMS.get(command, {})).items():
        if path[: len(other)] == other:
            return (*present, *path[len(other) :])
    return path


def print_note(text: str) -> None:
    """Print one line on stderr, separate from a command's output."""
    print(redact(visible(f"slimrl: {text}")), file=sys.stderr)
