"""Settings from flags, files, the environment and defaults, merged and checked: `load(RLConfig, argv, environ)`.

Precedence: flags > files, left to right > `SLIMRL_TRAINER__OPTIM__LR` > the same with `PRIME_` > defaults. All commands
share the environment variables, so variables for other commands are ignored. Sections merge key by key. A list is
replaced as a whole, or one element is replaced by `--env.0.id x`. Every mistake is reported as one `UserError` with the
key, its origin, its value and the expected value.

pydantic validates the values. The code that reads them is our own, because pydantic-settings loses the line of a value,
and importing it takes as long as the rest of `slimrl rl --help`.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slimrl.config.base import OTHER_VARIABLES, SECRET, CommandConfig
from slimrl.config.checks.command import check
from slimrl.config.checks.faults import ConfigError, check_secrets
from slimrl.config.reading.flags import from_command_line
from slimrl.config.reading.names import Names, names_of, print_note
from slimrl.config.reading.schema import Path, Spec, below, describe, leaves, spec_of, spec_of_field, spell, where
from slimrl.config.reading.sources import Setting, from_file, show
from slimrl.config.reading.tree import Tree
from slimrl.config.reading.values import plain_settings, quote_hint
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError

C = TypeVar("C", bound=CommandConfig)
ENV_PREFIXES = ("PRIME_", "SLIMRL_")  # in order of precedence, the lowest first
# A variable that names no setting is refused. But a `PRIME_` variable without this separator may belong to another
# program of prime-rl's makers, and is refused only if it looks like a misspelt setting.
SECTIONS = "__"
LOOKS_LIKE = 0.8


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
    """Return the checked configuration of a command, from `argv` (without the command's own name) and `environ`. `note`
    receives a line about settings that were given under an old name.

    Raises:
        UserError: a setting is unknown, of the wrong type, missing, or contradicts another; or a file cannot be read.
    """
    names = names_of(config_class, note)
    given = from_command_line(argv, spec_of(config_class), names)
    return replace(resolve(config_class, given, environ, names), argv=tuple(argv))


def load_file(config_class: type[C], path: FilePath) -> C:
    """Return the checked configuration in a file, without notes about old names. Raise UserError as `load` does."""
    names = names_of(config_class, lambda text: None)
    return resolve(config_class, names.translate(from_file(str(path))), {}, names).config


def resolve(config_class: type[C], given: Sequence[Setting], environ: Mapping[str, str], names: Names) -> Resolved[C]:
    """Return the checked configuration from `environ` and the settings `given`. These have present names, and a later
    setting replaces an earlier setting. `names` are the command's names. Raise UserError as `load` does."""
    root = spec_of(config_class)
    settings: list[Setting] = []
    # The lowest precedence is first: a later setting replaces an earlier one.
    for prefix in ENV_PREFIXES:
        settings += names.translate(_own_variables(environ, prefix, names))
    tree = Tree(root, names.note)
    for setting in [*settings, *given]:
        for part in plain_settings(setting, root):
            tree.place(part)
    values = tree.to_dict()
    for key, field in config_class.model_fields.items():
        if field.is_required() and spec_of_field(field).sections:
            values.setdefault(key, {})  # so that the message names the missing settings inside it
    try:
        check_secrets(values)  # first, because an error message may show the value
        config = config_class.model_validate(values)
        check(config)
    except ValidationError as error:
        raise UserError(_explain(error, tree, root)) from None
    except ConfigError as error:
        found = "; ".join(f"{spell(key)}: {_origin(tree, key)}" for key in error.paths)
        raise UserError(f"{error} ({found})") from None
    return Resolved(config, {spell(path): origin for path, origin in tree.origins.items()})


def _origin(tree: Tree, path: Path) -> str:
    """Return the origin of the value at `path`. If it has no origin, return the origin of the nearest container, or of
    the first value inside it; "default" if there is none."""
    around = [tree.origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in tree.origins]
    inside = [origin for key, origin in tree.origins.items() if key[: len(path)] == path]
    return next(iter(around + inside), "default")


def _explain(error: ValidationError, tree: Tree, root: Spec) -> str:
    """Return the message for pydantic's errors, one line for each key."""
    messages: dict[Path, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        spec = root
        path: Path = ()
        for key in map(str, item["loc"]):
            deeper = below(spec, key)  # None: not a key but pydantic's name for a member of a union
            spec, path = (deeper, (*path, key)) if deeper else (spec, path)
        # pydantic reports an error for each member of a union: one message for a setting is enough.
        messages.setdefault(path, _explain_one(item, path, spec, tree))
    if len(messages) == 1:
        return next(iter(messages.values()))
    return "\n".join([f"{len(messages)} settings cannot be used:", *(f"- {text}" for text in messages.values())])


def _explain_one(item: ErrorDetails, path: Path, spec: Spec, tree: Tree) -> str:
    """Return the message for one error of pydantic: the key, its origin, its value and the expected value."""
    wanted = describe(spec).removeprefix("a section with type = ")
    kind, value = item["type"], item["input"]
    if kind == "missing":
        help_text = spec.field.description if spec.field and spec.field.description else ""
        return f"{spell(path)} is not set, expected {wanted}. {' '.join(help_text.split())}".rstrip()
    if kind == "union_tag_not_found":
        return f"{spell(path)}.type is not set, expected {wanted}."
    if kind == "extra_forbidden":  # a key of another variant of the section: unknown keys were refused before
        tag = (*path[:-1], "type")
        chosen = f"{spell(tag)} = {show(tree.values[tag])} ({_origin(tree, tag)})"
        return f"{where(path, _origin(tree, path))}: cannot act with {chosen}. Remove one of the two."
    if kind == "union_tag_invalid":  # is reported at the section, but its key `type` is wrong
        path, value = (*path, "type"), value["type"]
    return f"{where(path, _origin(tree, path))}: found {show(value)}, expected {wanted}.{quote_hint(value)}"


def _own_variables(environ: Mapping[str, str], prefix: str, names: Names) -> list[Setting]:
    """Return the settings in environment variables with this prefix that belong to the command of `names`:
    `SLIMRL_TRAINER__OPTIM__LR=1e-5` sets `trainer.optim.lr`. For a variable of no command, raise UserError with the
    nearest known variable."""
    settings = [
        Setting(tuple(name.removeprefix(prefix).lower().split(SECTIONS)), text, name, "variable")
        for name, text in environ.items()
        if name.startswith(prefix) and name not in OTHER_VARIABLES
    ]
    # Sort a list before its elements, and element 2 before element 10.
    settings.sort(key=lambda setting: [(len(key) * key.isdecimal(), key) for key in setting.path])
    return [one for one in settings if _is_own(one, prefix, names)]


def _is_own(setting: Setting, prefix: str, names: Names) -> bool:
    # PRIME_API_KEY is the secret of another service, and must not become the key of our server.
    if prefix == "PRIME_" and setting.path == (SECRET,):
        return False
    commands = (names, *map(names.of, COMMANDS.values()))
    if found := next((one for one in commands if one.is_known(setting.path) or one.is_foreign(setting.path)), None):
        return found is names
    close = _nearest(setting.origin, prefix, names)
    if prefix == "PRIME_" and SECTIONS not in setting.origin and close is None:
        return False
    hint = f" The nearest is `{close}`." if close else ""
    raise UserError(
        f"{setting.origin}: this environment variable sets nothing that exists.{hint} Correct it, or unset it."
    )


def _nearest(name: str, prefix: str, names: Names) -> str | None:
    """Return the variable most similar to the name; None if none is similar."""
    known = [f"{prefix}{SECTIONS.join(path).upper()}" for path, _ in leaves(names.root)]
    known += OTHER_VARIABLES if prefix == "SLIMRL_" else []
    # A forgotten section is likelier than a misspelling: SLIMRL_OPTIM__LR matches SLIMRL_TRAINER__OPTIM__LR.
    ending = name.removeprefix(prefix.rstrip("_"))
    if (prefix == "SLIMRL_" or SECTIONS in ending) and (same := [one for one in known if one.endswith(ending)]):
        return same[0]
    return next(iter(difflib.get_close_matches(name, known, 1, LOOKS_LIKE)), None)
