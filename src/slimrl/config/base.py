"""The base classes of all sections of the configuration. `reading/` reads files, flags and environment variables.

A section is a frozen pydantic model. The string under a field is the field's text in `slimrl rl --help`. The name of a
field contains its unit (`timeout_s`). If slimrl may choose the value of a field, the default is the word "auto" or
"preset", never None.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

SECRET = "api_key"  # the only setting that is never shown or written to a file

# Environment variables with the prefix SLIMRL_ that are not settings. They are not refused as unknown settings.
OTHER_VARIABLES = {"SLIMRL_CACHE": "directory for models converted from another format"}


class Config(BaseModel):
    """A section: immutable, with no unknown keys and no silent conversions (the text "3" is not the number 3)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # keeps --help fast, which needs the fields but no validators
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
    """Return a text with the name, the value and the reason for every field that pydantic rejects."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))} = {one['input']!r:.80}: {one['msg']}" for one in error.errors())
