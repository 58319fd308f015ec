"""How the user calls slimrl, for commands that are printed to be copied."""

import os


def command_prefix() -> str:
    """`uv run ` where `uv run` started this process, else nothing: an installation has the commands on its PATH."""
    return "uv run " if "UV" in os.environ else ""
