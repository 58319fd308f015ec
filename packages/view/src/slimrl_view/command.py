"""The `view` command: its flags and its help. `show.py` does the work."""

import argparse
import re
from collections.abc import Callable, Sequence

from slimrl.errors import UserError, nearest
from slimrl.plugins import call

PORT = 7717
KEY = "SLIMRL_API_KEY"
MAX_ROLLOUTS = 2000
EPILOG = """\
A RUN is the output_dir of `slimrl rl`, `sft` or `eval`, during a run or after it, also copied from another machine.
A directory of runs stands for all of them. Without a RUN, those below outputs/ and runs/ are listed.

  slimrl view outputs/reverse_text                 curves, rollouts and tokens of one run, live
  slimrl view outputs/before outputs/after         two runs, or several seeds, beside each other
  slimrl view outputs/reverse_text --export page   the same as files: open page/index.html, or send the directory

The page answers this machine alone. From another one, forward the port: `ssh -L 7717:127.0.0.1:7717 HOST`.
An index of the rollouts is kept in RUN/.view/, which can be deleted at any time. See docs/viewer.md.
"""


def run_view(argv: Sequence[str]) -> int:
    """Run `slimrl view RUN ...`: serve the page until a signal, or write it to a directory with `--export`. Return the
    exit status."""
    parser = _parser()
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        flags = re.findall(r"--[\w-]+", parser.format_usage())
        raise UserError(f"view: there is no option `{unknown[0]}`.{nearest(unknown[0].partition('=')[0], flags)}")
    return int(call("slimrl_view.show:show", args))  # imports NumPy, which `--help` does not need


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimrl view",
        description="Shows runs in the browser, live, from their files alone: curves, groups, rollouts, tokens.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="directories of runs")
    port_help = f"port of the page; {PORT} by default, or the next that is free"
    parser.add_argument("--port", type=_number(0, 65535), help=port_help)
    parser.add_argument(
        "--host", default="127.0.0.1", help=f"address to listen on; another than this machine's needs {KEY}"
    )
    parser.add_argument("--no-open", "--no_open", action="store_true", help="do not open the page in a browser")
    parser.add_argument("--export", metavar="DIR", help="write the page with its data to a directory, and end")
    parser.add_argument(
        "--max_rollouts",
        "--max-rollouts",
        type=_number(1, 10**9),
        default=MAX_ROLLOUTS,
        metavar="N",
        help=f"most training rollouts of a run in an export, and most of its evaluations; {MAX_ROLLOUTS} by default",
    )
    return parser


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers in a range, for argparse."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,10}", text, re.ASCII) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a whole number from {least} to {most} is needed, and not {text!r}")
        return int(text)

    return read
