"""Settings from flags, files, the environment and defaults, merged and checked: `load(RLConfig, argv, environ)`.

Precedence: flags > files, left to right > `SLIMRL_TRAINER__OPTIM__LR` > the same with `PRIME_` > defaults. Sections
merge key by key; a list is replaced as a whole, or in one element by `--env.0.id x`. Whatever is wrong is one
`UserError` that names the key, where it was set, what was found and what is expected.

pydantic validates. The sources are not those of pydantic-settings, which forgets the line of a value, and takes as long
to import as all the rest of `slimrl rl --help`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from slimrl.config.base import CommandConfig
from slimrl.config.checks.command import check
from slimrl.config.checks.error import ConfigError
from slimrl.config.checks.secrets import check_secrets
from slimrl.config.reading.flags import from_command_line
from slimrl.config.reading.names import names_of
from slimrl.config.reading.old_names import print_note
from slimrl.config.reading.schema import (
    Path,
    Spec,
    below,
    describe,
    spec_of,
    spec_of_field,
    spell,
    where,
)
from slimrl.config.reading.sources import ENV_PREFIXES, Setting, show
from slimrl.config.reading.tree import Origins, Tree, get_value, leave_other_variant, place
from slimrl.config.reading.values import plain_settings, quote_hint
from slimrl.config.reading.variables import own_variables
from slimrl.errors import UserError

C = TypeVar("C", bound=CommandConfig)


@dataclass(frozen=True, slots=True)
class Resolved(Generic[C]):
    """A valid configuration, and where each value that is not a default came from.

    `provenance` maps `trainer.optim.lr` to `run.toml:12`, `--trainer.optim.lr` or `SLIMRL_TRAINER__OPTIM__LR`. `argv`
    are the words of the command line after the command, and None where there was none, as in Python.
    """

    config: C
    provenance: Mapping[str, str]
    argv: Sequence[str] | None = None


def load(
    config_class: type[C], argv: Sequence[str], environ: Mapping[str, str], note: Callable[[str], None] = print_note
) -> Resolved[C]:
    """The checked configuration of a command, from `argv` (without the command's own name) and `environ`. `note`
    receives a line about settings that were given under an old name.

    Raises:
        UserError: a setting is unknown, of the wrong type, missing, or contradicts another; or a file cannot be read.
    """
    given = from_command_line(argv, spec_of(config_class), names_of(config_class, note))
    return replace(resolve(config_class, given, environ, note), argv=tuple(argv))


def resolve(
    config_class: type[C],
    given: Sequence[Setting],
    environ: Mapping[str, str],
    note: Callable[[str], None] = print_note,
) -> Resolved[C]:
    """The checked configuration from given settings, under their present names and in order of precedence, and from
    `environ`. Raises UserError as `load` does."""
    root = spec_of(config_class)
    names = names_of(config_class, note)
    settings: list[Setting] = []
    # The lowest precedence comes first: a later setting replaces an earlier one.
    for prefix in ENV_PREFIXES:
        settings += names.translate(own_variables(environ, prefix, names))
    tree: Tree = {}
    origins: Origins = {}
    for setting in [*settings, *given]:
        for part in plain_settings(setting, root):
            leave_other_variant(tree, origins, root, part, note)
            place(tree, origins, root, part)
    for key, field in config_class.model_fields.items():
        if field.is_required() and spec_of_field(field).sections:
            tree.setdefault(key, {})  # so that the message names what is missing inside it
    try:
        check_secrets(tree)  # first, because an error about a value shows it
        config = config_class.model_validate(tree)
        check(config)
    except ValidationError as error:
        raise UserError(_explain(error, tree, origins, root)) from None
    except ConfigError as error:
        found = "; ".join(f"{spell(key)}: {_origin(origins, key)}" for key in error.paths)
        raise UserError(f"{error} ({found})") from None
    return Resolved(config, {spell(path): origin for path, origin in origins.items()})


def _origin(origins: Origins, path: Path) -> str:
    """The origin of the value at `path`; if it has none, that of the nearest container or of the first value inside."""
    around = [origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins]
    inside = [origin for key, origin in origins.items() if key[: len(path)] == path]
    return next(iter(around + inside), "default")


def _explain(error: ValidationError, tree: Tree, origins: Origins, root: Spec) -> str:
    """The message for pydantic's errors, one line for each key."""
    messages: dict[Path, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        spec = root
        path: Path = ()
        for key in map(str, item["loc"]):
            deeper = below(spec, key)  # None: not a key but pydantic's name for a member of a union
            spec, path = (deeper, (*path, key)) if deeper else (spec, path)
        # pydantic reports an error for each member of a union: one message for a setting is enough.
        messages.setdefault(path, _explain_one(item["type"], path, spec, (tree, origins)))
    if len(messages) == 1:
        return next(iter(messages.values()))
    return "\n".join([f"{len(messages)} settings cannot be used:", *(f"- {text}" for text in messages.values())])


def _explain_one(kind: str, path: Path, spec: Spec, found: tuple[Tree, Origins]) -> str:
    """The message for one error of pydantic: the key, where it was set, what was found and what is expected."""
    tree, origins = found
    if kind == "missing":
        help_text = spec.field.description if spec.field and spec.field.description else ""
        return f"{spell(path)} is not set, expected {describe(spec)}. {' '.join(help_text.split())}".rstrip()
    if kind == "union_tag_not_found":
        return f"{spell(path)}.type is not set, expected {describe(spec).removeprefix('a section with type = ')}."
    if kind == "extra_forbidden":  # a key of another variant of the section: unknown keys were refused before
        tag = (*path[:-1], "type")
        chosen = f"{spell(tag)} = {show(_value(tree, tag))} ({_origin(origins, tag)})"
        return f"{where(path, _origin(origins, path))}: cannot act with {chosen}. Remove one of the two."
    # pydantic reports a wrong tag at the section, and the person has to look at the key `type` in it.
    path = (*path, "type") if kind == "union_tag_invalid" else path
    value = _value(tree, path)
    wanted = describe(spec).removeprefix("a section with type = ")
    return f"{where(path, _origin(origins, path))}: found {show(value)}, expected {wanted}.{quote_hint(value)}"


def _value(tree: Tree, path: Path) -> Any:
    """The value that was given at a path."""
    value: Any = tree
    for key in path:
        value = get_value(value, key)
    return value
