"""Finds how this process was started: the user's prefix for commands, which printed commands repeat, and torchrun's
processes. Prints to the standard output."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from slimrl.errors import UserError

HELP = {"-h", "--help"}
PROGRAM = ["-m", "slimrl"]


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
    """Return the words before `slimrl` in the user's command line. If `uv run` started the process, return `uv run `
    with its options, such as `--with PACKAGE`. Otherwise return an empty text.

    The variable UV is not sufficient to detect `uv run`, because `uvx` sets it, too. After `uvx` or an installation
    with pip, `uv run` would fail.
    """
    if not os.environ.get("UV"):
        return ""
    if options := uv_options(_words_of_parent(), sys.argv[1:]):
        return f"{shlex.join(['uv', 'run', *options])} "
    return "uv run " if Path(sys.prefix).name == ".venv" else ""


def uv_options(words: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the options of `uv run` in the parent's command line `words`, given this process's `arguments`. Return an
    empty list if the parent has another command line.

    >>> uv_options(["/bin/uv", "run", "--with", "six", "rl", "@", "a.toml"], ["@", "a.toml"])
    ['--with', 'six']
    """
    split = len(words) - len(arguments)
    if split < 3 or Path(words[0]).name != "uv" or words[1] != "run" or [*words[split:]] != [*arguments]:
        return []
    found = [*words[2:split]]
    program = found[-2:] if found[-2:] == PROGRAM else found[-1:]
    options = found[: -len(program)]
    # Leave out `python` before a module or a file, unless it is the value of the option `--python`.
    names_python = Path(options[-1]).name.startswith("python") if options else False
    is_value = options[-2:-1] in (["-p"], ["--python"])
    by_python = program == PROGRAM or program[0].endswith(".py")
    return options[:-1] if by_python and names_python and not is_value else options


def _words_of_parent() -> list[str]:
    """Return the command line of the parent process; empty if it cannot be read, as on macOS."""
    try:
        text = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:
        return []
    return os.fsdecode(text).split("\0")[:-1]
