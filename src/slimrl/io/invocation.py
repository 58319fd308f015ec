"""How the user calls slimrl, for commands that are printed to be copied."""

import os
import sys
from pathlib import Path


def command_prefix() -> str:
    """The prefix `uv run ` if that is how this process was started in a project's `.venv`, else an empty string.

    uv sets UV for all that it starts, for `uvx` too; there, as in an installation by pip, `uv run` would fail.
    """
    return "uv run " if os.environ.get("UV") and Path(sys.prefix).name == ".venv" else ""
