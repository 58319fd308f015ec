"""The user's way to call slimrl, for printed commands to be copied; and the standard output, on which they appear."""

import os
import shlex
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from slimrl.errors import UserError

HELP = {"-h", "--help"}
PROGRAM = ["-m", "slimrl"]


def allow_any_letter() -> None:
    """Write characters that a terminal or a log lacks as escapes, on the standard output and on the standard error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show(text: str) -> int:
    """Print a page to the standard output. A reader such as `head` may close it early. Return the exit status."""
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


def command_prefix() -> str:
    """Return the start of a command line before `slimrl`: `uv run ` with the options with which uv started this
    process, such as `--with PACKAGE`, or an empty string.

    uv sets UV for all that it starts, for `uvx` too; there, as in an installation by pip, `uv run` would fail.
    """
    if not os.environ.get("UV"):
        return ""
    if options := uv_options(_words_of_parent(), sys.argv[1:]):
        return f"{shlex.join(['uv', 'run', *options])} "
    return "uv run " if Path(sys.prefix).name == ".venv" else ""


def uv_options(words: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the options of `uv run` in the command line of the parent process, given the arguments of this process;
    empty if it is another command line.

    >>> uv_options(["/bin/uv", "run", "--with", "six", "rl", "@", "a.toml"], ["@", "a.toml"])
    ['--with', 'six']
    """
    split = len(words) - len(arguments)
    if split < 3 or Path(words[0]).name != "uv" or words[1] != "run" or [*words[split:]] != [*arguments]:
        return []
    found = [*words[2:split]]
    program = found[-2:] if found[-2:] == PROGRAM else found[-1:]
    options = found[: -len(program)]
    # Python itself may precede a module or a file, but not as the value of an option.
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
