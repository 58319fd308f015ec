"""Finds how this process was started: by `uv run`, or by torchrun with others. Prints to the standard output."""

import os
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from slimrl.errors import UserError

HELP = {"-h", "--help"}


def allow_any_letter() -> None:
    """Make the standard streams write escapes for characters that a terminal or a log cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(text: str) -> int:
    """Print text to the standard output, and return the exit status: 0 even if a reader such as `head` stops early."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def check_words(words: Sequence[str]) -> None:
    """Raise UserError for a word of a command line that is not UTF-8 text."""
    if broken := next((word for word in words if any("\ud800" <= letter <= "\udfff" for letter in word)), None):
        raise UserError(f"the argument {broken!a} is no UTF-8 text. Type it anew, or rename the file.")


def num_ranks(environ: Mapping[str, str]) -> int:
    """Return the number of processes that torchrun started together with this one; 1 without torchrun. WORLD_SIZE alone
    does not count, because schedulers set it for unrelated processes, too."""
    return int(environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in environ else 1


def command_prefix() -> str:
    """Return the words before `slimrl` in commands for the user: `uv run ` if `uv run` started this process in a
    checkout; otherwise an empty text.

    The variable UV is not sufficient to detect `uv run`, because `uvx` sets it, too. After `uvx` or an installation
    with pip, `uv run` would fail.
    """
    return "uv run " if os.environ.get("UV") and Path(sys.prefix).name == ".venv" else ""
