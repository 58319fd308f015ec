"""The text of `slimrl rl --help`, which is made from the configuration's classes and their docstrings."""

import inspect
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from slimrl.config.base import OTHER_VARIABLES, CommandConfig, Config
from slimrl.config.reading.schema import Path, Spec, below, describe, keys_below, spec_of, spec_of_field, spell

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
  --help                   print this text
"""


def help_text(config_class: type[CommandConfig]) -> str:
    """The help of a command: every setting by section, with type, default and meaning, and examples at the end."""
    command = " ".join([config_class.command, *([config_class.operand.upper()] if config_class.operand else [])])
    variables = "\n".join(f"  {name:<24} {meaning}" for name, meaning in OTHER_VARIABLES.items())
    parts = [
        f"usage: slimrl {command} [@ FILE ...] [--key VALUE ...]",
        "",
        _wrap(_doc(config_class), ""),
        SYNTAX.replace("{variables}", variables),
    ]
    parts += _section(spec_of(config_class), (), "Settings")
    parts += ["Examples", *(f"  {example}" for example in config_class.examples)]
    return "\n".join(parts) + "\n"


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
