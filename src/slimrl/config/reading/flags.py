"""Converts the command line and the environment variables to settings. The syntax is `@ file`, `--section @ file`,
`--key.subkey value`, `--switch`, and `SLIMRL_KEY__SUBKEY=value`.

In the name of a flag, `-` and `_` are equivalent. Flags override files regardless of their order. If several files, or
several flags, set the same key, the last value wins.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from slimrl.config.base import OTHER_VARIABLES, SECRET
from slimrl.config.reading.names import Names, current_path
from slimrl.config.reading.schema import Path, describe, keys_below, leaves, locate, spec_of
from slimrl.config.reading.sources import Setting, from_file
from slimrl.errors import UserError

ENV_PREFIXES = ("PRIME_", "SLIMRL_")  # in order of precedence, the lowest first
# A variable is refused if no setting has its name. But a `PRIME_` variable without this separator may belong to another
# program of prime-rl's makers. It is refused only if it looks like a misspelt setting.
SECTIONS = "__"
LOOKS_LIKE = 0.8


def from_command_line(argv: Sequence[str], names: Names) -> list[Setting]:
    """Return the settings of every file, then the settings of every flag, for the command of `names`."""
    files: list[Setting] = []  # a separate list, because flags override files regardless of their order
    flags: list[Setting] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word.startswith("@"):
            files += names.translate(from_file(_file_name(word, words, "@")))
        elif word.startswith("--") and len(word) > 2:
            settings = _flag(word, words, names)  # settings of a file, for `--trainer @ my_trainer.toml`
            (files if settings and settings[0].kind == "file" else flags).extend(settings)
        elif word.startswith("-") and len(word) > 1:
            raise UserError(f"{word}: flags begin with two dashes, as in `--max_steps 100`.")
        else:
            raise UserError(f"{word}: found a value with no flag before it. To read a file, write `@ {word}`.")
    return files + names.translate(flags)


def _flag(word: str, words: list[str], names: Names) -> list[Setting]:
    """Return the setting of the flag `word`. For `--section @ FILE`, return the settings of the file. The flag's value
    is removed from `words`, the words after the flag."""
    flag, has_value, value = word.partition("=")
    path = _path(flag)
    is_foreign = names.is_foreign(path)
    spec = spec_of(Any) if is_foreign else locate(names.root, current_path(names.command, path), flag)
    following = words[0] if words else "--"
    # After a switch, `@` starts a file of the whole command; after a section, a file of that section; and after
    # anything else `@name` is the value itself.
    if has_value:
        pass
    elif (spec.sections or spec.is_open) and following.startswith("@"):
        return names.translate(from_file(_file_name(words.pop(0), words, f"{flag} @"), under=path))
    elif not following.startswith("--") and following != "@" and not (spec.is_switch and following.startswith("@")):
        value = words.pop(0)
    elif spec.is_switch or is_foreign or names.has_plain(path):
        value = "true"
    elif spec.sections:
        inside = ", ".join(f"`{flag}.{key}`" for key in keys_below(spec))
        raise UserError(f"{flag}: this is a section. Set something in it ({inside}), or read it with `{flag} @ FILE`.")
    else:
        raise UserError(f"{flag}: no value follows, expected {describe(spec)}. Write `{flag} VALUE` or `{flag}=VALUE`.")
    return [Setting(path, value, flag, "flag")]


def _path(flag: str) -> Path:
    """Return the path of a flag."""
    return tuple(flag[2:].replace("-", "_").split("."))


def _file_name(word: str, words: list[str], before: str) -> str:
    """Return the name of the file after `@`: the rest of `word`, or the next word."""
    name = word[1:] or (words.pop(0) if words else "")
    if not name or name.startswith("--"):
        raise UserError(f"{before}: a file name must follow, as in `{before} examples/reverse_text/rl.toml`.")
    return name


def names_section(argv: Sequence[str], section: str) -> bool:
    """Return True if a flag or a file of the command line sets a value in the top-level section `section`. Callers use
    this to distinguish two commands with the same name. Raise UserError for a file that cannot be read."""
    files = [word[1:] or after for word, after in pairwise([*argv, ""]) if word.startswith("@")]
    flags = [_path(word.partition("=")[0]) for word in argv if word.startswith("--")]
    paths = chain(flags, (setting.path for name in files if name for setting in from_file(name)))
    return any(path[0] == section for path in paths)


def from_environment(environ: Mapping[str, str], names: Names) -> list[Setting]:
    """Return the settings from environment variables for the command of `names`, sorted from the lowest precedence.
    For example, `SLIMRL_TRAINER__OPTIM__LR=1e-5` sets `trainer.optim.lr`. If no command has the setting of a variable,
    raise UserError with the nearest known variable."""
    settings: list[Setting] = []
    for prefix in ENV_PREFIXES:
        own = list(_own_variables(environ, prefix, names))
        # Sort a list before its elements, and element 2 before element 10.
        own.sort(key=lambda setting: [(len(key) * key.isdecimal(), key) for key in setting.path])
        settings += names.translate(own)
    return settings


def _own_variables(environ: Mapping[str, str], prefix: str, names: Names) -> Iterator[Setting]:
    for name, text in environ.items():
        path = tuple(name.removeprefix(prefix).lower().split(SECTIONS))
        # PRIME_API_KEY is the secret of another service, and must not become the key of our server.
        if not name.startswith(prefix) or name in OTHER_VARIABLES or (prefix == "PRIME_" and path == (SECRET,)):
            continue
        commands = chain([names], names.of_commands())
        owner = next((one for one in commands if one.is_known(path) or one.is_foreign(path)), None)
        if owner is names:
            yield Setting(path, text, name, "variable")
        elif owner is None:
            close = _nearest(name, prefix, names)
            if close or prefix == "SLIMRL_" or SECTIONS in name:
                hint = f" The nearest is `{close}`." if close else ""
                raise UserError(
                    f"{name}: this environment variable sets nothing that exists.{hint} Correct it, or unset it."
                )


def _nearest(name: str, prefix: str, names: Names) -> str:
    """Return the known variable that is most similar to `name`; empty if no variable is similar."""
    known = [f"{prefix}{SECTIONS.join(path).upper()}" for path, _ in leaves(names.root)]
    known += OTHER_VARIABLES if prefix == "SLIMRL_" else []
    # Look for a missing section first, which is likelier than a misspelling: SLIMRL_OPTIM__LR instead of
    # SLIMRL_TRAINER__OPTIM__LR.
    ending = name.removeprefix(prefix.rstrip("_"))
    same = [one for one in known if one.endswith(ending) and (prefix == "SLIMRL_" or SECTIONS in ending)]
    return next(iter(same or difflib.get_close_matches(name, known, 1, LOOKS_LIKE)), "")
