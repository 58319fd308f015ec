"""The command line as settings: `@ file`, `--section @ file`, `--key.subkey value`, `--switch`, `--no-switch`.

In a flag `-` and `_` are the same. Flags override files regardless of their order. If several files, or several flags,
set the same key, the last value wins.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

from slimrl.config.reading.names import Names
from slimrl.config.reading.schema import Path, Spec, describe, keys_below, locate, spell
from slimrl.config.reading.sources import Setting, from_file
from slimrl.errors import UserError


def from_command_line(argv: Sequence[str], root: Spec, names: Names) -> list[Setting]:
    """Return the settings of every file, then the settings of every flag. `root` describes the command's sections and
    switches; `names` has the other names of settings."""
    files: list[Setting] = []  # flags override files regardless of their order, hence two lists
    flags: list[Setting] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word.startswith("@"):
            files += names.translate(from_file(_file_name(word, words, "@")))
        elif word.startswith("--") and len(word) > 2:
            settings = _flag(word, words, root, names)  # settings of a file, for `--trainer @ my_trainer.toml`
            (files if settings and settings[0].kind == "file" else flags).extend(settings)
        elif word.startswith("-") and len(word) > 1:
            raise UserError(f"{word}: flags begin with two dashes, as in `--max_steps 100`.")
        else:
            raise UserError(f"{word}: found a value with no flag before it. To read a file, write `@ {word}`.")
    return files + names.translate(flags)


def _flag(word: str, words: list[str], root: Spec, names: Names) -> list[Setting]:
    """Return the setting of the flag `word`. For `--section @ FILE`, return the settings of the file. Remove the words
    that belong to the flag from `words`."""
    flag, has_value, value = word.partition("=")
    path = _path(flag)
    given = Setting(path, value, flag, "flag")
    if not has_value and (switch := _switch_off_path(path, root)):
        return [Setting(switch, "false", flag, "flag")]
    spec = Spec(Any) if names.is_foreign(path) else locate(root, names.current(path), flag)
    following = words[0] if words else "--"
    takes_file = bool(spec.sections) or spec.is_open
    # After a switch, `@` starts a file of the whole command; after a section, a file of that section; and after
    # anything else `@name` is the value itself.
    if has_value:
        pass
    elif takes_file and following.startswith("@"):
        return names.translate(from_file(_file_name(words.pop(0), words, f"{flag} @"), under=path))
    elif not following.startswith("--") and following != "@" and not (spec.is_switch and following.startswith("@")):
        value = words.pop(0)
    elif spec.is_switch or names.is_foreign(path) or names.has_plain(path):
        value = "true"
    elif spec.sections:
        inside = ", ".join(f"`{flag}.{key}`" for key in keys_below(spec))
        raise UserError(f"{flag}: this is a section. Set something in it ({inside}), or read it with `{flag} @ FILE`.")
    else:
        raise UserError(f"{flag}: no value follows, expected {describe(spec)}. Write `{flag} VALUE` or `{flag}=VALUE`.")
    return [replace(given, value=value)]


def _path(flag: str) -> Path:
    """Return the path of a flag, in which `-` and `_` are the same."""
    return tuple(flag[2:].replace("-", "_").split("."))


def _switch_off_path(path: Path, root: Spec) -> Path | None:
    """Return the path of the switch that `--no-SWITCH` turns off, or None for any other flag."""
    # A setting whose own name starts with `no_` is not a negation.
    if not path[0].startswith("no_") or path[0] in {key for section in root.sections for key in section.model_fields}:
        return None
    positive = (path[0].removeprefix("no_"), *path[1:])
    spec = locate(root, positive, f"--no-{spell(positive)}")
    if not spec.is_switch:
        raise UserError(f"--no-{spell(positive)}: {spell(positive)} is {describe(spec)}, so it cannot be turned off.")
    return positive


def _file_name(word: str, words: list[str], before: str) -> str:
    """Return the name of the file after `@`, with or without a space between the two."""
    name = word[1:] or (words.pop(0) if words else "")
    if not name or name.startswith("--"):
        raise UserError(f"{before}: a file name must follow, as in `{before} examples/reverse_text/rl.toml`.")
    return name


def names_section(argv: Sequence[str], section: str) -> bool:
    """Return True if a flag or a file of the command line sets something in the top-level section `section`. This
    distinguishes two commands with the same name. Raise UserError for a file that cannot be read."""
    files = [word[1:] or after for word, after in pairwise([*argv, ""]) if word.startswith("@")]
    flags = [_path(word.partition("=")[0]) for word in argv if word.startswith("--")]
    paths = chain(flags, (setting.path for name in files if name for setting in from_file(name)))
    return any(path[0] == section for path in paths)
