"""Makes the pages of `slimrl COMMAND --help` from the configuration's classes and their docstrings. To be fast, this
module imports no code that reads settings."""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from slimrl.config.base import OTHER_VARIABLES, CommandConfig, Config
from slimrl.config.reading.schema import Path, Spec, below, describe, keys_below, spec_of, spell
from slimrl.config.run import RLConfig
from slimrl.errors import UserError, nearest
from slimrl.io.invocation import HELP, show
from slimrl.plugins import Command, imported

WIDTH = 100
SYNTAX = """
Settings are read in this order, and the first that has one wins:
  --section.key VALUE      a flag; `-` and `_` are the same; `--key` alone is true
  @ FILE                   TOML, YAML or JSON; of several files the last one wins; sections merge key by key
  --section @ FILE         the same, for one section
  SLIMRL_SECTION__KEY      an environment variable (PRIME_SECTION__KEY is read too, and counts for less)
Lists and dictionaries are written in TOML or JSON: --orchestrator.env '[{id="reverse-text"}]'; one
element is reached by its number: --orchestrator.env.0.id reverse-text. Other variables:
{variables}

  --dry-run                print every setting and where it came from, then stop
  --help [SECTION | all]   print the help, of one section or of everything
"""
ALL = "all"
PART_HELP = """\
`slimrl {name}` is a part of an `rl` run as a process of its own, on the same host as the others, with the same file:

  slimrl inference @ FILE       samples tokens
  slimrl orchestrator @ FILE    plays episodes, makes batches, evaluates
  slimrl trainer @ FILE         trains

They find one another in the run's directory; `slimrl rl @ FILE --deployment.type processes` starts and watches them.
The settings are those of `rl`.

"""


def show_help(name: str, command: Command, argv: Sequence[str]) -> int:
    """Print the help page of a command, or of the section whose name follows `--help`. Returns the exit status."""
    if command.settings:
        return show_settings(imported(command.settings), argv)
    show(PART_HELP.format(name=name))
    return show_settings(RLConfig, argv)


def show_settings(config_class: type[CommandConfig], argv: Sequence[str]) -> int:
    """Print the settings of a command, or of the section whose name follows `--help`. Returns the exit status."""
    place = next(place for place, word in enumerate(argv) if word in HELP)
    behind = argv[place + 1 : place + 2]
    section = next((word for word in behind if not word.startswith(("-", "@"))), "")
    return show(help_text(config_class, section))


def help_text(config_class: type[CommandConfig], wanted: str = "") -> str:
    """Return the help of a command. If `wanted` is empty, the help has the most used settings; with `all`, all
    settings; otherwise the settings of the section `wanted`, without examples. Raise UserError for an unknown section.
    """
    operand = config_class.operand.partition(".")[0].upper()
    command = f"{config_class.command} {operand}".strip()
    spec = spec_of(config_class)
    if config_class.operand and wanted != ALL and below(spec, wanted.partition(".")[0]) is None:
        wanted = ""  # `wanted` is the command's operand, not a section
    parts = [f"usage: slimrl {command} [@ FILE ...] [--key VALUE ...]", "", _wrap(_doc(config_class), "")]
    if wanted not in ("", ALL):
        parts = [*_variants(*_find(spec, wanted))]
    elif wanted == ALL or not config_class.page:
        variables = "\n".join(f"  {name:<24} {meaning}" for name, meaning in OTHER_VARIABLES.items())
        parts += [SYNTAX.replace("{variables}", variables), *_section(spec, (), "Settings")]
    else:
        parts += _page(config_class, spec)
    if wanted in ("", ALL):
        parts += ["Examples", *(f"  {example}" for example in config_class.examples)]
    return "\n".join(parts) + "\n"


def _page(config_class: type[CommandConfig], spec: Spec) -> Iterator[str]:
    """Yield the lines of the settings that most people change, and a note on how to list all settings."""
    yield "\nThe settings that most people change, in a TOML file (`@ FILE`) or as flags:\n"
    for name in config_class.page:
        field, path = _find(spec, name)
        yield from _setting(field, path, "", re.split(r"(?<=[.])\s", _description(field), maxsplit=1)[0])
    sections = [key for key in keys_below(spec) if (inner := below(spec, key)) and inner.item.sections]
    yield "\n" + _wrap(
        f"`--help SECTION` prints one section, as `--help trainer.loss`: {', '.join(sections)}. `--help {ALL}` prints "
        "everything, and how settings are read. `--dry-run` prints every setting and where it came from.",
        "",
    )
    yield ""


def _find(spec: Spec, name: str) -> tuple[Spec, Path]:
    """Return the spec and the path of the setting or section with the full name `name`. If the name is unknown, raise
    UserError with the nearest name."""
    found: Spec = spec
    path: Path = ()
    for key in name.replace("-", "_").split("."):
        inner = below(found, key) or below(found.item, key)
        if inner is None:
            where = f"the section `{spell(path)}`" if path else "these settings"
            known = [*keys_below(found.item), *(("0",) if found.is_list else ()), *(() if path else (ALL,))]
            raise UserError(f"there is no `{key}` in {where}.{nearest(key, known)}")
        found, path = inner, (*path, key)
    return found, path


def _section(spec: Spec, path: Path, title: str, chosen_by: str = "") -> Iterator[str]:
    """Yield the lines of one section: its plain settings, then its subsections. `chosen_by` is the key that selects
    this variant of the section."""
    fields = {key: field for key in keys_below(spec) if (field := below(spec, key))}
    yield title
    if path:
        yield from (_wrap(_doc(section), "  ") for section in spec.sections)
    yield ""
    # As in a file, the plain settings precede the subsections.
    for key, field in fields.items():
        if not field.item.sections:
            yield from _setting(field, (*path, key), f"  {describe(field)}", _description(field), key == chosen_by)
            yield ""
    for key, field in fields.items():
        if field.item.sections:
            yield from _variants(field, (*path, key))


def _variants(field: Spec, path: Path) -> Iterator[str]:
    """Yield the help lines of a field. It may be a plain setting, a section, a section with variants, or a list."""
    if not field.item.sections:
        yield from _setting(field, path, f"  {describe(field)}", _description(field))
    elif field.is_list:
        title = f"[[{spell(path)}]]  {describe(field)}{_default(field)}"
        yield from _section(field.item, (*path, "0"), f"{title}\n{_wrap(_description(field), '  ')}")
    elif len(field.sections) == 1:
        yield from _section(field, path, f"[{spell(path)}]")
    else:
        for section in field.sections:
            kind = describe(Spec(section.model_fields["type"]))
            title = f"[{spell(path)}]  if --{spell(path)}.type is {kind}"
            yield from _section(spec_of(section), path, title, chosen_by="type")


def _setting(field: Spec, path: Path, kind: str, text: str, is_required: bool = False) -> Iterator[str]:
    """Yield the lines of one setting: its flag with `kind` and the default value, then `text`."""
    default = " (required)" if is_required else _default(field)
    yield textwrap.fill(f"  --{spell(path)}{kind}{default}", WIDTH, subsequent_indent=" " * 10)
    yield _wrap(text, "      ")


def _description(field: Spec) -> str:
    """Return the help text of a field: the string under the field in its class."""
    return field.field.description or ""


def _default(field: Spec) -> str:
    """Return the default of a setting in parentheses, or "(required)"."""
    if field.is_required:
        return " (required)"
    value = field.default
    if isinstance(value, Config):
        return " (default as below)"
    shown = repr(value) if isinstance(value, float) else json.dumps(value)  # repr writes 1e-05, as TOML allows
    return f" (default {shown})"


def _doc(section: type[Config]) -> str:
    return inspect.cleandoc(section.__doc__ or "")


def _wrap(text: str, indent: str) -> str:
    return "\n\n".join(
        textwrap.fill(" ".join(part.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)
        for part in text.split("\n\n")
    )
