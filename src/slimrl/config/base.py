"""The base classes of all sections of the configuration. Files, flags and variables are in `reading/`.

A section is a frozen pydantic model. The string under a field is the field's help text, so it is written for readers of
`slimrl rl --help`. A field's name contains its unit (`timeout_s`). If a field's value may be chosen automatically, the
value is the word "auto" or "preset", never None.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

SECRET = "api_key"  # the one setting that is never shown or written to a file

# Environment variables with the prefix SLIMRL_ that are not settings, so they are not refused as unknown.
OTHER_VARIABLES = {"SLIMRL_CACHE": "directory for models converted from another format"}


class Config(BaseModel):
    """A section: immutable, with no unknown keys and no silent conversions (the text "3" is not the number 3)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # --help reads only the fields; building no validators keeps it fast
        protected_namespaces=(),
    )

    shorthand: ClassVar[str] = ""
    """The setting that a plain text stands for when a section is expected; empty if none."""

    first: ClassVar[tuple[str, ...]] = ()
    """The settings that stand first in the help and in a saved file; the others follow, own before inherited ones."""


class CommandConfig(Config):
    """All settings of one command: the top level of its configuration."""

    command: ClassVar[str]
    """The name of the command."""

    examples: ClassVar[tuple[str, ...]]
    """Command lines for the end of the help."""

    page: ClassVar[tuple[str, ...]] = ()
    """The settings that `--help` shows, by their full names; all of them if it is empty."""

    operand: ClassVar[str] = ""
    """The setting that a first word without a flag sets, as in `slimrl play reverse-text`; empty if there is none."""


def describe_faults(error: ValidationError) -> str:
    """Describe every field that pydantic rejects: the field's name, its value and the reason."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))} = {one['input']!r:.80}: {one['msg']}" for one in error.errors())
