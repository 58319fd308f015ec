"""Reads settings from flags, files, environment variables and defaults, merges and checks them:
`load(RLConfig, argv, environ)`.

The precedence is, from highest to lowest: flags, files (the last file first), variables such as
`SLIMRL_TRAINER__OPTIM__LR`, variables with `PRIME_`, defaults. All commands share the environment variables, so
variables for other commands are ignored. Sections are merged key by key. A list is replaced as a whole; a flag such as
`--env.0.id x` changes one element. All mistakes are reported in one `UserError`, with the key, its origin, its value
and the expected value.

The settings are collected in a flat list, sorted from the lowest precedence. `tree.py` merges them to nested data, and
pydantic validates the result once. slimrl does not use pydantic-settings, because it loses the line number of a value,
and its import takes as long as the rest of `slimrl rl --help`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slimrl.config.base import CommandConfig
from slimrl.config.checks import ConfigError, check, check_secrets
from slimrl.config.reading.flags import from_command_line, from_environment
from slimrl.config.reading.names import Names, names_of, print_note
from slimrl.config.reading.schema import Path, Spec, below, describe, explain_unknown, spec_of, spell, where
from slimrl.config.reading.sources import Setting, from_file, show
from slimrl.config.reading.tree import Tree
from slimrl.errors import UserError

C = TypeVar("C", bound=CommandConfig)


@dataclass(frozen=True, slots=True)
class Resolved(Generic[C]):
    """A valid configuration, and the origin of each value that is not a default.

    `provenance` maps `trainer.optim.lr` to `run.toml:12`, `--trainer.optim.lr` or `SLIMRL_TRAINER__OPTIM__LR`. `argv`
    has the words after the command on the command line, or is None if the Python API made the configuration.
    """

    config: C
    provenance: Mapping[str, str]
    argv: Sequence[str] | None = None


def load(
    config_class: type[C], argv: Sequence[str], environ: Mapping[str, str], note: Callable[[str], None] = print_note
) -> Resolved[C]:
    """Return the checked configuration of a command, from `argv` (the words after the command) and `environ`. `note`
    logs the settings that have the names of another trainer.

    Raises:
        UserError: a setting is unknown, has the wrong type, is missing, or contradicts another setting; or a file
            cannot be read.
    """
    names = names_of(config_class, note)
    return replace(resolve(config_class, from_command_line(argv, names), environ, names), argv=tuple(argv))


def load_file(config_class: type[C], path: FilePath) -> C:
    """Return the checked configuration in a file, without notes. Raise the same UserErrors as `load`."""
    names = names_of(config_class, lambda text: None)
    return resolve(config_class, names.translate(from_file(str(path))), {}, names).config


def resolve(config_class: type[C], given: Sequence[Setting], environ: Mapping[str, str], names: Names) -> Resolved[C]:
    """Return the checked configuration from `environ` and the settings `given`. The settings must have slimrl's current
    names (`names`). A later setting replaces an earlier setting. Raise the same UserErrors as `load`."""
    tree = Tree(names.root, names.note)
    for setting in [*from_environment(environ, names), *given]:
        tree.add(setting)
    for key, field in config_class.model_fields.items():
        if field.is_required() and spec_of(field.annotation).sections:
            tree.values.setdefault(key, {})  # so that the message names the missing settings inside it
    try:
        check_secrets(tree.values)  # first, because an error message may show the value
        config = config_class.model_validate(tree.values)
        check(config)
    except ValidationError as error:
        raise UserError(_explain(error, tree, names.root)) from None
    except ConfigError as error:
        found = "; ".join(f"{spell(key)}: {tree.origin_of(key)}" for key in error.paths)
        raise UserError(f"{error} ({found})") from None
    return Resolved(config, {spell(path): setting.origin for path, setting in tree.given.items()})


def _explain(error: ValidationError, tree: Tree, root: Spec) -> str:
    """Return the message for pydantic's errors, one line for each key."""
    messages: dict[Path, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        spec = root
        path: Path = ()
        *above, last = map(str, item["loc"])
        for key in above:
            deeper = below(spec, key)  # None if `key` is pydantic's name for a member of a union
            spec, path = (deeper, (*path, key)) if deeper else (spec, path)
        if item["type"] == "extra_forbidden":
            path = (*path, last)
        elif deeper := below(spec, last):
            spec, path = deeper, (*path, last)
        # pydantic reports an error for each member of a union, but one message for a setting is enough.
        messages.setdefault(path, _explain_one(item, path, spec, tree))
    if len(messages) == 1:
        return next(iter(messages.values()))
    short = [f"- {text.partition(' Known: ')[0]}" for text in messages.values()]
    return "\n".join([f"{len(messages)} settings cannot be used:", *short])


def _explain_one(item: ErrorDetails, path: Path, spec: Spec, tree: Tree) -> str:
    """Return the message for one error of pydantic: the key, its origin, its value and the expected value."""
    kind, value, wanted = item["type"], item["input"], describe(spec)
    found, hint = show(value), quote_hint(value)
    if kind == "missing":
        return (
            f"{spell(path)} is not set, expected {wanted}. {' '.join((spec.field.description or '').split())}".rstrip()
        )
    if kind == "extra_forbidden":
        tag = (*path[:-1], "type")
        if len(spec.sections) < 2 or below(spec, path[-1]) is None:
            why = explain_unknown(tree.root, path)
        else:  # a key of another variant of the section
            chosen = f"{spell(tag)} = {show(tree.get(tag))} ({tree.origin_of(tag)})"
            why = f"cannot act with {chosen}. Remove one of the two."
        return f"{where(path, tree.origin_of(path))}: {why}"
    if kind.startswith("union_tag"):  # is reported at the section, but its key `type` is wrong
        path, wanted = (*path, "type"), wanted.removeprefix("a section with type = ")
        if kind == "union_tag_not_found":
            return f"{spell(path)} is not set, expected {wanted}."
        found = show(value["type"])
    elif spec.is_list and isinstance(value, dict):
        hint = f" Write `[[{spell(path)}]]` with two brackets."
    elif spec.sections and isinstance(value, list):
        found, hint = "a list", f" Write `[{spell(path)}]` with one bracket."
    return f"{where(path, tree.origin_of(path))}: found {found}, expected {wanted}.{hint}"


def quote_hint(value: object) -> str:
    """Return a hint if the value looks like a list or a table from which the shell has removed the inner quotes."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return """ The shell takes quotes away: put single ones around the whole, as in '[{id="reverse-text"}]'."""
    return ""
