"""The names under which a command's settings may be given: the present ones, synonyms, old ones, and the names in other
trainers (`slimrl.dialects`)."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from slimrl.config.base import CommandConfig
from slimrl.config.reading.old_names import current_path, print_note, rename
from slimrl.config.reading.schema import Path, Spec, find, spec_of
from slimrl.config.reading.sources import Setting
from slimrl.config.reading.tree import Tree
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError
from slimrl.plugins import DIALECTS, load_all

TRY_ONE = ("play", "check")  # commands that take one environment in words

IsKnown = Callable[[Path], bool]  # returns True if slimrl has a setting at a path


class Translation(Protocol):
    """A source in slimrl's terms."""

    @property
    def settings(self) -> Sequence[Setting]: ...

    @property
    def impossible(self) -> Sequence[str]:
        """A line about each key that slimrl does not support."""

    def lines(self) -> Iterator[str]:
        """Yield the report, with one line per key."""

    def refuse_impossible(self, name: str) -> None:
        """Raise UserError if slimrl does not support some keys of the source called `name`."""


class Dialect(Protocol):
    """The settings of another trainer, as an entry of `slimrl.dialects` names it."""

    @property
    def name(self) -> str:
        """The trainer's name."""

    def has(self, command: str, path: Path) -> bool:
        """Return True if the trainer has a setting at the path, for a command of slimrl."""

    def has_plain(self, path: Path) -> bool:
        """Return True if the trainer takes a plain value where slimrl has a section."""

    def is_foreign(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> bool:
        """Return True if a source is written for the trainer."""

    def translate(self, source: Sequence[Setting], command: str, is_known: IsKnown) -> Translation:
        """Return the settings of a source in slimrl's terms, if `is_foreign` is True for the source."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one command's settings. `note` receives lines about names that are not the present ones."""

    command: str
    root: Spec
    note: Callable[[str], None]
    dialects: Sequence[Dialect] = ()

    def of(self, config_class: type[CommandConfig]) -> "Names":
        """Return the names of another command's settings."""
        return replace(self, command=config_class.command, root=spec_of(config_class))

    def current(self, path: Path) -> Path:
        """Return the present name of the path; a name of another trainer stays."""
        return current_path(self.command, path)

    def is_known(self, path: Path) -> bool:
        """Return True if slimrl has a setting at the path, under its present or another name of its own."""
        return find(self.root, self.current(path)) is not None

    def is_foreign(self, path: Path) -> bool:
        """Return True if another trainer has the path and slimrl does not."""
        return not self.is_known(path) and any(dialect.has(self.command, path) for dialect in self.dialects)

    def has_plain(self, path: Path) -> bool:
        """Return True if another trainer takes a plain value where slimrl has a section."""
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
        """Raise UserError for a file with settings that are unknown here and all known to another command."""
        strange = sorted({one.path[0] for one in source if one.kind == "file" and not self.is_known(one.path[:1])})
        for name, config_class in COMMANDS.items() if strange else ():
            other = self.of(config_class)
            if all(other.is_known(one.path) for one in source):
                words = _first_environment(source, other.root) if self.command in TRY_ONE else ""
                instead = f"try its environment by `slimrl {self.command} {words}`" if words else ""
                raise UserError(
                    f"{_subject(source)} is a settings file of `slimrl {name}`: of `slimrl {self.command}` there is no "
                    f"setting {', '.join(f'`{key}`' for key in strange)}. Start `slimrl {name} @ {_subject(source)}`, "
                    f"or {instead or f'name a file of `slimrl {self.command}`'}."
                )


def names_of(config_class: type[CommandConfig], note: Callable[[str], None]) -> Names:
    """Return the names of a command's settings."""
    dialects: list[Dialect] = load_all(DIALECTS, "the dialect", note)
    return Names(config_class.command, spec_of(config_class), note, dialects)


def _first_environment(source: Sequence[Setting], root: Spec) -> str:
    """Return the first environment of a run's file as words of a command line, with its arguments; empty if none."""
    tree = Tree(root, print_note)
    for one in source:
        tree.place(one)
    match tree.to_dict():
        case {"orchestrator": {"env": [{"id": name, **more}, *_]}}:
            words, args = [str(name)], more.get("args")
            for key, value in args.items() if isinstance(args, dict) else ():
                words += [f"--args.{key}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
            return shlex.join(words)
    return ""


def _subject(source: Sequence[Setting]) -> str:
    """Return the name of a source of settings for messages: its file, the command line or the environment."""
    match source[0].kind:
        case "file":
            return re.sub(r":\d+$", "", source[0].origin)
        case "flag":
            return "the command line"
        case _:
            return "the environment"
