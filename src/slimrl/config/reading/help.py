"""The text of `slimrl rl --help`, which is made from the configuration's classes and their docstrings."""

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from slimrl.config.base import OTHER_VARIABLES, CommandConfig, Config
from slimrl.config.reading.schema import Path, Spec, below, describe, keys_below, spec_of, spec_of_field, spell
from slimrl.errors import UserError, nearest

WIDTH = 100
SYNTAX = """
Settings are read in this order, and the first that has one wins:
  --section.key VALUE      a flag; `-` and `_` are the same; `--key` alone is true, `--no-key` is false
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


def help_text(config_class: type[CommandConfig], wanted: str = "") -> str:
    """The help of a command, with examples at the end: its most used settings; `all` settings, by section with type,
    default and meaning; or one section. Raises UserError for a section that does not exist."""
    command = " ".join([config_class.command, *([config_class.operand.upper()] if config_class.operand else [])])
    spec = spec_of(config_class)
    if config_class.operand and wanted != ALL and below(spec, wanted.partition(".")[0]) is None:
        wanted = ""  # the word is the operand
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
    """The lines of the settings that most people change, and the ways to the others."""
    yield "\nThe settings that most people change, in a TOML file (`@ FILE`) or as flags:\n"
    for name in config_class.page:
        field, path = _find(spec, name)
        first = re.split(r"(?<=[.])\s", " ".join(_description(field).split()), maxsplit=1)[0]
        yield textwrap.fill(f"  --{spell(path)}{_default(field)}", WIDTH, subsequent_indent=" " * 10)
        yield _wrap(first, "      ")
    sections = [key for key in keys_below(spec) if (inner := below(spec, key)) and _item(inner).sections]
    yield "\n" + _wrap(
        f"`--help SECTION` prints one section, as `--help trainer.loss`: {', '.join(sections)}. `--help {ALL}` prints "
        "everything, and how settings are read. `--dry-run` prints every setting and where it came from.",
        "",
    )
    yield ""


def _find(spec: Spec, name: str) -> tuple[Spec, Path]:
    """A setting or section by its full name. Raises UserError with the nearest name."""
    found: Spec = spec
    path: Path = ()
    for key in name.replace("-", "_").split("."):
        known = [*keys_below(_item(found)), *(("0",) if found.is_list else ())]
        inner = below(found, key) or below(_item(found), key)
        if inner is None:
            where = f"the section `{spell(path)}`" if path else "these settings"
            raise UserError(f"there is no `{key}` in {where}.{nearest(key, [*known, *(() if path else (ALL,))])}")
        found, path = inner, (*path, key)
    return found, path


def _section(spec: Spec, path: Path, title: str, chosen_by: str = "") -> Iterator[str]:
    """The lines of one section: its own settings, then the sections inside it. `chosen_by` is the key that chooses this
    variant of the section."""
    fields = {key: field for key in keys_below(spec) if (field := below(spec, key))}
    inner = {key: field for key, field in fields.items() if _item(field).sections}
    yield title
    if path:
        yield from (_wrap(_doc(section), "  ") for section in spec.sections)
    yield ""
    # As in a file, the plain settings come before the sections.
    for key, field in fields.items():
        if key not in inner:
            default = " (required)" if key == chosen_by else _default(field)
            yield textwrap.fill(
                f"  --{spell((*path, key))}  {describe(field)}{default}", WIDTH, subsequent_indent=" " * 10
            )
            yield _wrap(_description(field), "      ") + "\n"
    for key, field in inner.items():
        yield from _variants(field, (*path, key))


def _variants(field: Spec, path: Path) -> Iterator[str]:
    """The lines of a section, of each of its variants, or of the element of a list of sections."""
    if not _item(field).sections:
        yield textwrap.fill(f"  --{spell(path)}  {describe(field)}{_default(field)}", WIDTH, subsequent_indent=" " * 10)
        yield _wrap(_description(field), "      ")
        return
    if field.is_list:
        title = f"[[{spell(path)}]]  {describe(field)}{_default(field)}"
        yield from _section(_item(field), (*path, "0"), f"{title}\n{_wrap(_description(field), '  ')}")
        return
    if len(field.sections) == 1:
        yield from _section(field, path, f"[{spell(path)}]")
        return
    for section in field.sections:
        kind = describe(spec_of_field(section.model_fields["type"]))
        yield from _section(
            spec_of(section), path, f"[{spell(path)}]  if --{spell(path)}.type is {kind}", chosen_by="type"
        )


def _description(field: Spec) -> str:
    """The text under a field in its class."""
    return (field.field.description if field.field else None) or ""


def _item(field: Spec) -> Spec:
    """The element of a list; any other field unchanged."""
    return (below(field, "0") or field) if field.is_list else field


def _default(field: Spec) -> str:
    """The default of a setting in parentheses, or that it is required."""
    if field.is_required:
        return " (required)"
    return f" (default {_show(field.default)})"


def _show(value: Any) -> str:
    if isinstance(value, Config):
        return "as below"
    return repr(value) if isinstance(value, float) else json.dumps(value)  # repr writes 1e-05, as a TOML file may


def _doc(section: type[Config]) -> str:
    return inspect.cleandoc(section.__doc__ or "")


def _wrap(text: str, indent: str) -> str:
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        textwrap.fill(" ".join(part.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)
        for part in paragraphs
    )
