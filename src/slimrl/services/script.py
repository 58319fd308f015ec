"""What the scripts that start a server have in common: two flags, what they do, and how the script ends. Knows no
server."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from slimrl.errors import UserError
from slimrl.services.process import Program, run, start, stop


def make_parser(script: str, about: str, examples: str = "") -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=script, description=about, epilog=examples, formatter_class=raw)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", action="store_true", help="end the server that this script started")
    what.add_argument("-f", "--foreground", action="store_true", help="stay, and show what the server says")
    return parser


def start_or_stop(arguments: argparse.Namespace, name: str, port: int, program: Callable[[], Program]) -> int:
    """Start what `program` makes, or end the one of that name and port, as the two flags say. Returns the exit status.
    Raises UserError."""
    if arguments.stop:
        return 0 if stop(name, port) else 1
    if arguments.foreground:
        return run(program())
    start(program())
    return 0


def run_script(main: Callable[[Sequence[str]], int]) -> NoReturn:
    """Ends the script as `main` says, given the command line."""
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: nothing was left running")
