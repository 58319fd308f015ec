"""The names under which a command's settings may be given: the present ones, synonyms and old ones, and prime-rl's."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from slimrl.config.base import CommandConfig
from slimrl.config.prime_rl.rules import is_listed
from slimrl.config.prime_rl.translation import TABLES, is_foreign, refuse_impossible, translate
from slimrl.config.reading.old_names import OldNames, old_names
from slimrl.config.reading.schema import Path, Spec, below, spec_of
from slimrl.config.reading.sources import Setting
from slimrl.config.reading.tree import Tree, get_tree, place
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError

TRY_ONE = ("play", "check")  # commands that take one environment in words
FIRST_ENV = ("orchestrator", "env", "0")  # where a run's file has it


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one command's settings; `note` receives lines about those that are not the present ones."""

    command: str
    root: Spec
    old: OldNames
    note: Callable[[str], None]

    def current(self, path: Path) -> Path:
        """The path as it is called now; a name of prime-rl's stays."""
        return self.old.current(path)

    def is_known(self, path: Path) -> bool:
        """Whether slimrl has a setting at the path, under its present or another name of its own."""
        spec: Spec | None = self.root
        for key in self.current(path):
            spec = below(spec, key) if spec else None
        return spec is not None

    def is_foreign(self, path: Path) -> bool:
        """Whether the path is a name of prime-rl's that slimrl does not have."""
        return not self.is_known(path) and is_listed(TABLES.get(self.command, {}), path)

    def translate(self, source: Sequence[Setting]) -> list[Setting]:
        """The settings of one source (a file, the flags, the variables) under their present names.

        Raises UserError where the source has a setting under two names, where it is a file of another command, and
        where it is written for prime-rl and asks for what slimrl cannot do.
        """
        if not is_foreign(source, self.command, self.is_known):
            self._refuse_file_of_another(source)
        else:
            translation = translate(source, self.command, self.is_known)
            subject = _subject(source)
            if translation.impossible:
                self._refuse_file_of_another(source)
            refuse_impossible(translation, subject)
            self.note(f"{subject} has names of prime-rl's, and is read so:")
            for line in translation.lines():
                self.note(f"  {line}")
            source = translation.settings
        return self.old.translate(source)

    def _refuse_file_of_another(self, source: Sequence[Setting]) -> None:
        """Raises UserError for a file that has settings unknown here, and all of which another command has."""
        strange = sorted({one.path[0] for one in source if one.kind == "file" and not self.is_known(one.path[:1])})
        for name, config_class in COMMANDS.items() if strange else ():
            other = replace(self, command=name, root=spec_of(config_class))
            if all(other.is_known(one.path) for one in source):
                words = _first_environment(source, other.root) if self.command in TRY_ONE else ""
                instead = f"try its environment by `slimrl {self.command} {words}`" if words else ""
                raise UserError(
                    f"{_subject(source)} is a settings file of `slimrl {name}`: of `slimrl {self.command}` there is no "
                    f"setting {', '.join(f'`{key}`' for key in strange)}. Start `slimrl {name} @ {_subject(source)}`, "
                    f"or {instead or f'name a file of `slimrl {self.command}`'}."
                )


def names_of(config_class: type[CommandConfig], note: Callable[[str], None]) -> Names:
    """The names of a command's settings."""
    return Names(config_class.command, spec_of(config_class), old_names(config_class, note), note)


def _first_environment(source: Sequence[Setting], root: Spec) -> str:
    """The first environment of a run's file as words of a command line, with its arguments; empty if there is none."""
    tree: Tree = {}
    for one in source:
        place(tree, {}, root, one)
    env = get_tree(tree, FIRST_ENV)
    if not isinstance(env, dict) or "id" not in env:
        return ""
    words, args = [str(env["id"])], env.get("args")
    for name, value in args.items() if isinstance(args, dict) else ():
        words += [f"--args.{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
    return shlex.join(words)


def _subject(source: Sequence[Setting]) -> str:
    """What a source is called in a message."""
    match source[0].kind:
        case "file":
            return re.sub(r":\d+$", "", source[0].origin)
        case "flag":
            return "the command line"
        case _:
            return "the environment"
