"""Settings of the commands, read as the commands read them."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import C, Resolved, load
from slimrl.errors import UserError

ENV = ["--orchestrator.env.0.id", "reverse-text"]


def read(config_class: type[C], *argv: str, **environ: str) -> tuple[Resolved[C], list[str]]:
    """Return the resolved settings of a command line and the variables, and the notes about them."""
    notes: list[str] = []
    return load(config_class, argv, environ, notes.append), notes


def error_of(config_class: type[CommandConfig], *argv: str, **environ: str) -> str:
    """Return the message about settings that are refused."""
    with pytest.raises(UserError) as caught:
        read(config_class, *argv, **environ)
    return str(caught.value)


def written(path: Path, text: str | bytes) -> str:
    """Write a file and return its name."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)
