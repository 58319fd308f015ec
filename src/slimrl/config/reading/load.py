"""Settings from flags, files, the environment and defaults, merged and checked: `load(RLConfig, argv, environ)`.

Precedence: flags > files, left to right > `SLIMRL_TRAINER__OPTIM__LR` > the same with `PRIME_` > defaults. Sections
merge key by key; a list is replaced as a whole, or in one element by `--env.0.id x`. Whatever is wrong is one
`UserError` that names the key, where it was set, what was found and what is expected.

pydantic validates. The sources are not those of pydantic-settings, which forgets the line of a value, and takes as long
to import as all the rest of `slimrl rl --help`.
"""

import contextlib
import difflib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from slimrl.config.base import OTHER_VARIABLES, SECRET, CommandConfig, Config
from slimrl.config.checks.command import check
from slimrl.config.checks.error import ConfigError
from slimrl.config.reading.flags import from_command_line
from slimrl.config.reading.old_names import old_names, print_note
from slimrl.config.reading.schema import (
    Path,
    Spec,
    below,
    describe,
    leaves,
    locate,
    spec_of,
    spec_of_field,
    spell,
    where,
)
from slimrl.config.reading.sources import ENV_PREFIXES, Setting, flatten, from_environment, show
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError

C = TypeVar("C", bound=CommandConfig)
Tree = dict[str, Any]
Origins = dict[Path, str]
MISSING = object()


@dataclass(frozen=True, slots=True)
class Resolved(Generic[C]):
    """A valid configuration, and where each value that is not a default came from.

    `provenance` maps `trainer.optim.lr` to `run.toml:12`, `--trainer.optim.lr` or `SLIMRL_TRAINER__OPTIM__LR`.
    """

    config: C
    provenance: Mapping[str, str]


def load(
    config_class: type[C], argv: Sequence[str], environ: Mapping[str, str], note: Callable[[str], None] = print_note
) -> Resolved[C]:
    """The checked configuration of a command, from `argv` (without the command's own name) and `environ`. `note`
    receives a line about settings that were given under an old name.

    Raises:
        UserError: a setting is unknown, of the wrong type, missing, or contradicts another; or a file cannot be read.
    """
    given = from_command_line(argv, spec_of(config_class), old_names(config_class, note))
    return resolve(config_class, given, environ, note)


def resolve(
    config_class: type[C],
    given: Sequence[Setting],
    environ: Mapping[str, str],
    note: Callable[[str], None] = print_note,
) -> Resolved[C]:
    """The checked configuration from given settings, under their present names and in order of precedence, and from
    `environ`. Raises UserError as `load` does."""
    root = spec_of(config_class)
    names = old_names(config_class, note)
    settings: list[Setting] = []
    # The lowest precedence comes first: a later setting replaces an earlier one.
    for prefix in ENV_PREFIXES:
        meant = [one for one in from_environment(environ, prefix) if _is_meant(one, config_class, prefix)]
        settings += names.translate(meant)
    tree: Tree = {}
    origins: Origins = {}
    for setting in [*settings, *given]:
        for part in _plain(setting, root):
            _place(tree, origins, root, part)
    for key, field in config_class.model_fields.items():
        if field.is_required() and spec_of_field(field).sections:
            tree.setdefault(key, {})  # so that the message names what is missing inside it
    try:
        config = config_class.model_validate(tree)
        check(config)
    except ValidationError as error:
        raise UserError(_explain(error, tree, origins, root)) from None
    except ConfigError as error:
        found = "; ".join(f"{spell(key)}: {_origin(origins, key)}" for key in error.paths)
        raise UserError(f"{error} ({found})") from None
    return Resolved(config, {spell(path): origin for path, origin in origins.items()})


def _is_meant(setting: Setting, config_class: type[CommandConfig], prefix: str) -> bool:
    """Whether an environment variable is for this command. All commands share the environment, so a variable of another
    command is ignored. Raises UserError for a variable of no command."""
    # PRIME_API_KEY is the secret of another service, and must not become the key of our server.
    if prefix == "PRIME_" and setting.path == (SECRET,):
        return False
    if _is_known(config_class, setting.path):
        return True
    if prefix == "SLIMRL_" and not any(_is_known(other, setting.path) for other in COMMANDS.values()):
        raise UserError(_unknown_variable(setting.origin, spec_of(config_class)))
    return False


def _unknown_variable(name: str, root: Spec) -> str:
    """The message about an environment variable that no command has, with the nearest one."""
    names = [*OTHER_VARIABLES, *(f"SLIMRL_{'__'.join(path).upper()}" for path, _ in leaves(root))]
    # A forgotten section is likelier than a misspelling: SLIMRL_OPTIM__LR ends like SLIMRL_TRAINER__OPTIM__LR.
    ending = name.removeprefix("SLIMRL")
    close = [known for known in names if known.endswith(ending)] or difflib.get_close_matches(name, names, 1, 0.0)
    hint = f" The nearest is `{close[0]}`." if close else ""
    return f"{name}: this environment variable sets nothing that exists.{hint} Correct it, or unset it."


def _is_known(config_class: type[CommandConfig], path: Path) -> bool:
    """Whether the command has a setting at the path, under its present or its old name."""
    spec: Spec | None = spec_of(config_class)
    for key in old_names(config_class, print_note).current(path):
        spec = below(spec, key) if spec else None
    return spec is not None


def _plain(setting: Setting, root: Spec) -> list[Setting]:
    """The plain values of a setting: the text of a flag or variable is read, and nested data is taken apart.

    Raises UserError for an unknown key, and for a section or list where the other is expected.
    """
    spec = locate(root, setting.path, setting.origin)
    value = setting.value if setting.kind == "file" else _read_text(setting.value, spec)
    here = where(setting.path, setting.origin)
    if not isinstance(value, (str, int, float, list, dict)):
        found = "nothing" if value is None else f"{value}, a {type(value).__name__}"
        raise UserError(f"{here}: found {found}, expected {describe(spec)}.")
    is_section = isinstance(value, dict)
    if spec.is_list and not isinstance(value, list):
        name = f"[[{spell(setting.path)}]]"
        hint = f" Write `{name}` with two brackets." if is_section else _quote_hint(value)
        raise UserError(f"{here}: found {'a section' if is_section else show(value)}, expected {describe(spec)}.{hint}")
    if spec.sections and not is_section:
        raise UserError(f"{here}: found {show(value)}, expected {describe(spec)}.{_quote_hint(value)}")
    parts = [Setting(path, part, setting.origin) for path, part in flatten(value, setting.path)]
    for part in parts:
        locate(root, part.path, part.origin)
    return parts


def _read_text(text: str, spec: Spec) -> Any:
    """The value that a text stands for: a TOML or JSON literal, or else the text itself."""
    if spec.is_verbatim:
        return text
    if spec.is_switch:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower(), text)
    if spec.annotation is float:  # also for `.5` and `5`, which TOML refuses or reads as an integer
        with contextlib.suppress(ValueError):
            return float(text)
    for document, read in ((f"value = {text}", tomllib.loads), (f'{{"value": {text}}}', json.loads)):
        with contextlib.suppress(ValueError):  # what both raise for text that is no literal of theirs
            parsed = read(document)
            # A text with a line break may hold more than one key, and TOML has dates: neither is a setting's value.
            if list(parsed) == ["value"] and isinstance(parsed["value"], (str, int, float, list, dict)):
                return parsed["value"]
    return text


def _quote_hint(value: Any) -> str:
    """A hint for a text that looks like a list or a table, and whose inner quotes the shell has removed."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return """ The shell takes quotes away: put single ones around the whole, as in '[{id="reverse-text"}]'."""
    return ""


def _place(tree: Tree, origins: Origins, root: Spec, setting: Setting) -> None:
    """Merges one plain value into the tree, and records its origin."""
    # Descends key by key and creates the containers on the way; only the last key is set.
    node: Any = tree
    spec = root
    for depth, key in enumerate(setting.path):
        spec = below(spec, key) or spec
        held = _get(node, key)
        is_last = depth == len(setting.path) - 1
        if not is_last and not isinstance(held, (dict, list)):  # nothing yet, or a plain value that is replaced
            held = _put(node, key, _start(spec), setting)
        elif is_last and setting.value == {} and isinstance(held, dict):
            return  # the header of a section that is there already: sections merge
        elif is_last:
            in_list = isinstance(node, list)
            _put(node, key, setting.value, setting)
            # What stood here and below is replaced, and so are the origins of its parts.
            for path in [path for path in origins if path[: depth + 1] == setting.path]:
                del origins[path]
            # The header of a section sets nothing by itself; an element of a list, even an empty one, does.
            if in_list or setting.value != {} or not spec.sections:
                origins[setting.path] = setting.origin
        node = held


def _start(spec: Spec) -> Any:
    """The content of a container before one element of it is set: the default of a list, else an empty section."""
    if not spec.is_list:
        return {}
    return [item.model_dump() if isinstance(item, Config) else item for item in spec.default or []]


def _get(node: Any, key: str) -> Any:
    """The value under a key of a section or an index of a list; MISSING if there is none."""
    if isinstance(node, list):
        return node[int(key)] if key.isdecimal() and int(key) < len(node) else MISSING
    return node.get(key, MISSING)


def _put(node: Any, key: str, value: Any, setting: Setting) -> Any:
    """Sets a key of a section, or replaces or appends an element of a list. Returns the value. Raises UserError for an
    index beyond the end of the list."""
    if isinstance(node, list):
        if not key.isdecimal() or int(key) > len(node):
            raise UserError(
                f"{where(setting.path, setting.origin)}: found element {key}, expected a number up to {len(node)}, "
                "because the list goes no further."
            )
        node[int(key) : int(key) + 1] = [value]  # the slice is empty at the end, so that this appends
    else:
        node[key] = value
    return value


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
    return f"{where(path, _origin(origins, path))}: found {show(value)}, expected {wanted}.{_quote_hint(value)}"


def _value(tree: Tree, path: Path) -> Any:
    """The value that was given at a path."""
    value: Any = tree
    for key in path:
        value = _get(value, key)
    return value
