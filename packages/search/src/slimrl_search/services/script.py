"""The module has the shared parts of the scripts that start a server: two flags, their effect, and the exit status."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from slimrl.errors import UserError, visible
from slimrl.io.secrets import redact
from slimrl_search.services.process import Program, start, stop


def make_parser(script: str, about: str, examples: str = "") -> argparse.ArgumentParser:
    """Return a parser with the flags `--stop` and `--foreground`, which exclude each other."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=script, description=about, epilog=examples, formatter_class=raw)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", action="store_true", help="end the server that this script started")
    what.add_argument("-f", "--foreground", action="store_true", help="stay, and show what the server says")
    return parser


def start_or_stop(arguments: argparse.Namespace, name: str, port: int, program: Callable[[], Program]) -> int:
    """Start the program, or stop the one with this name and port, depending on the flags; return the exit status.

    `program` is called only for a start, since it may download gigabytes. Raises UserError.
    """
    if arguments.stop:
        return 0 if stop(name, port) else 1
    return start(program(), arguments.foreground)


def run_script(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Call `main` with the command line and exit with its status, or with the message of a UserError."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(redact(visible(f"error: {error}")))
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was left running")
