"""What every section of the configuration has in common. Knows nothing of files, flags or variables: see `load.py`.

A section is a frozen pydantic model. The string under a field is that field's help text, so it is written for the
person who reads `slimrl rl --help`. A field's name carries its unit (`timeout_s`), and a field that may be chosen for
you says so with the word "auto" or "preset", never with None.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

SECRET = "api_key"  # the one setting that is never shown or written

# Variables that begin with SLIMRL_ and set nothing in the configuration.
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

    first: ClassVar[tuple[str, ...]] = ()
    """The settings that stand first in the help and in a saved file; the others follow, own before inherited ones."""


class CommandConfig(Config):
    """Everything that one command reads; its top level."""

    command: ClassVar[str]
    """The name of the command."""

    examples: ClassVar[tuple[str, ...]]
    """Command lines for the end of the help."""

    operand: ClassVar[str] = ""
    """The setting that the first word stands for if it has no flag, as in `slimrl play reverse-text`; mostly none."""
