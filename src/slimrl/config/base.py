"""The base classes of all sections of the configuration. Knows nothing of files, flags or variables: see `reading/`.

A section is a frozen pydantic model. The string under a field is that field's help text, so it is written for the
person who reads `slimrl rl --help`. A field's name carries its unit (`timeout_s`), and a field that may be chosen for
you says so with the word "auto" or "preset", never with None.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

SECRET = "api_key"  # the one setting that is never shown or written to a file

# Environment variables that begin with SLIMRL_ and are no settings, so that they are not refused as unknown ones.
OTHER_VARIABLES = {"SLIMRL_CACHE": "directory for models converted from another format"}


class Config(BaseModel):
    """A section: immutable, with no unknown keys and no silent conversions (the text "3" is not the number 3)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # --help needs the fields but never a validator: building none keeps it fast
        protected_namespaces=(),
    )

    shorthand: ClassVar[str] = ""
    """The setting that a plain text stands for where this section is expected; empty if none."""

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
    """A phrase that names every field that pydantic refuses, with its value and the reason."""
    return "; ".join(f"{'.'.join(map(str, one['loc']))} = {one['input']!r:.80}: {one['msg']}" for one in error.errors())
