"""Settings that have another name: a synonym, or an old name, for which a line on stderr says what to write now.

The tables below are all that there is to say of a name; a setting that was read under another name keeps its origin, so
that errors name the line or the flag as it stands.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slimrl.config.base import CommandConfig
from slimrl.config.reading.schema import Path, spell
from slimrl.config.reading.sources import Setting
from slimrl.errors import UserError, visible
from slimrl.io.secrets import redact

OLD_NAMES: dict[str, Mapping[Path, Path]] = {
    "rl": {("deployment", "sampler_restarts"): ("deployment", "restarts")},
    "eval": {(name,): ("sampling", name) for name in ("max_tokens", "stop", "top_p", "top_k", "min_p")},
}

# Two ways to write the same, both of them right: no line is printed. A longer name comes first.
SYNONYMS: Mapping[Path, Path] = {
    ("trainer", "model", "lora", "target_modules"): ("model", "lora", "targets"),
    ("trainer", "model", "lora"): ("model", "lora"),
    ("model", "lora", "target_modules"): ("model", "lora", "targets"),
}

# Synonyms of one command: those of its only environment, which `play` has at its top level.
SYNONYMS_OF: dict[str, Mapping[Path, Path]] = {
    "check": {(name,): ("env", "0", name) for name in ("args", "worker")},
}


@dataclass(frozen=True, slots=True)
class OldNames:
    """The other names of one command's settings; `note` receives the line about the old ones that were used."""

    table: Mapping[Path, Path]
    note: Callable[[str], None]
    synonyms: Mapping[Path, Path] = field(default_factory=dict)

    def current(self, path: Path) -> Path:
        """The path as it is called now."""
        other = self._other(path)
        return (*self._names()[other], *path[len(other) :]) if other else path

    def translate(self, source: Sequence[Setting]) -> list[Setting]:
        """The settings of one source (a file, the flags, the variables) under their present names.

        Raises UserError where the source has a setting under both names, because either could be meant.
        """
        used = [setting for setting in source if self._other(setting.path)]
        present = [setting for setting in source if not self._other(setting.path)]
        for setting in used:
            for other in present:
                _check_not_both(setting, self.current(setting.path), other)
        if old := [setting for setting in used if self._other(setting.path) in self.table]:
            self.note(self._advice(old))
        settings = [setting for setting in source if not self._is_way_to_other(setting)]
        return [replace(setting, path=self.current(setting.path)) for setting in settings]

    def _is_way_to_other(self, setting: Setting) -> bool:
        """Whether it is the header of a section in which another name stands: `[trainer.model]`, around `lora`, is no
        section of its own."""
        path = setting.path
        return setting.value == {} and any(len(path) < len(other) and other[: len(path)] == path for other in SYNONYMS)

    def _names(self) -> Mapping[Path, Path]:
        return {**SYNONYMS, **self.synonyms, **self.table}

    def _other(self, path: Path) -> Path:
        """The other name that a path begins with; empty if it is the present one."""
        return next((other for other in self._names() if path[: len(other)] == other), ())

    def _advice(self, used: Sequence[Setting]) -> str:
        """One line with what to write instead, spelled as the source of the settings spells it."""
        words = []
        for setting in used:
            old = self._other(setting.path)
            new = self.table[old]
            match setting.kind:
                case "variable":
                    prefix = setting.origin.partition("_")[0]
                    words.append(f"{prefix}_{'__'.join(new).upper()} for {prefix}_{'__'.join(old).upper()}")
                case "flag":
                    words.append(f"--{spell(new)} for --{spell(old)}")
                case "file":
                    words.append(f"{spell(new)} for {spell(old)}")
        is_file = used[0].kind == "file" and not used[0].origin.endswith("=")  # a keyword of the Python API has `key =`
        where = re.sub(r":\d+$", "", used[0].origin) + ": " if is_file else ""
        return f"{where}old names that still read; write {', '.join(dict.fromkeys(words))}"


def old_names(config_class: type[CommandConfig], note: Callable[[str], None]) -> OldNames:
    """The other names of a command's settings."""
    command = config_class.command
    return OldNames(OLD_NAMES.get(command, {}), note, SYNONYMS_OF.get(command, {}))


def print_note(text: str) -> None:
    """Prints one line on stderr, where it cannot mix with a command's output."""
    print(redact(visible(f"slimrl: {text}")), file=sys.stderr)


def _check_not_both(setting: Setting, present: Path, other: Setting) -> None:
    # A section as a whole, as in `--sampling '{top_k = 5}'`, has the setting too; its header, an empty `{}`, has not.
    shared = min(len(present), len(other.path))
    if present[:shared] == other.path[:shared] and other.value != {}:
        raise UserError(
            f"{spell(setting.path)} ({setting.origin}) is another name of {spell(present)}, and {spell(other.path)} "
            f"({other.origin}) is set beside it. Remove one of the two."
        )
