"""Settings with another name: a synonym, or an old name. For old names, a line on stderr shows the present one.

The tables below define all other names. A setting that was read under another name keeps its origin, so that errors
name the line or the flag as it was written.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slimrl.config.reading.schema import Path, spell
from slimrl.config.reading.sources import Setting
from slimrl.errors import UserError, visible
from slimrl.io.secrets import redact

OLD_NAMES: dict[str, Mapping[Path, Path]] = {
    "rl": {("deployment", "sampler_restarts"): ("deployment", "restarts")},
    "eval": {(name,): ("sampling", name) for name in ("max_tokens", "stop", "top_p", "top_k", "min_p")},
}

# Two correct names for the same: no line is printed. A longer name precedes a shorter one.
SYNONYMS: Mapping[Path, Path] = {
    ("trainer", "model", "lora", "target_modules"): ("model", "lora", "targets"),
    ("trainer", "model", "lora"): ("model", "lora"),
    ("model", "lora", "target_modules"): ("model", "lora", "targets"),
}

# Synonyms of one command: settings of its only environment, which `play` has at its top level.
SYNONYMS_OF: dict[str, Mapping[Path, Path]] = {
    "check": {(name,): ("env", "0", name) for name in ("args", "worker")},
}


def current_path(command: str, path: Path) -> Path:
    """Return the present name of the path."""
    other, present = _other_name(command, path)
    return (*present, *path[len(other) :])


def rename(command: str, source: Sequence[Setting], note: Callable[[str], None]) -> list[Setting]:
    """Return the settings of one source (a file, the flags, the variables) under their present names. `note` receives
    the line about old names in it.

    Raise UserError if the source has a setting under both names, because either could be meant.
    """
    used = [setting for setting in source if _other_name(command, setting.path)[0]]
    for setting in used:
        present = current_path(command, setting.path)
        for other in source:
            # A section as a whole, as in `--sampling '{top_k = 5}'`, sets it too; its header does not.
            shared = min(len(present), len(other.path))
            if other not in used and present[:shared] == other.path[:shared] and other.value != {}:
                raise UserError(
                    f"{spell(setting.path)} ({setting.origin}) is another name of {spell(present)}, and "
                    f"{spell(other.path)} ({other.origin}) is set beside it. Remove one of the two."
                )
    if old := [setting for setting in used if _other_name(command, setting.path)[0] in OLD_NAMES.get(command, {})]:
        note(_advice(command, old))
    # The header `[trainer.model]` around the synonym `lora` is not a section of its own.
    headers = {other[:end] for other in SYNONYMS for end in range(1, len(other))}
    settings = [setting for setting in source if setting.value != {} or setting.path not in headers]
    return [replace(setting, path=current_path(command, setting.path)) for setting in settings]


def _other_name(command: str, path: Path) -> tuple[Path, Path]:
    """Return the other name at the start of a path, and the present one; both empty if it has none."""
    tables = SYNONYMS, SYNONYMS_OF.get(command, {}), OLD_NAMES.get(command, {})
    names = (pair for table in tables for pair in table.items())
    return next((pair for pair in names if path[: len(pair[0])] == pair[0]), ((), ()))


def _advice(command: str, used: Sequence[Setting]) -> str:
    """Return one line with the present names, spelled as the source of the settings spells them."""
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
