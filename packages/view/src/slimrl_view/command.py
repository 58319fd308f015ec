"""The `view` command: its flags and its help. `show.py` does the work."""

import argparse
import re
from collections.abc import Sequence

from slimrl.errors import UserError, nearest
from slimrl.plugins import call

PORT = 7717
KEY = "SLIMRL_API_KEY"
EPILOG = """\
A RUN is the output_dir of `slimrl rl`, `sft` or `eval`, during a run or after it, also copied from another machine.
A directory of runs stands for all of them. Without a RUN, those below outputs/ and runs/ are shown.

  slimrl view outputs/reverse_text           curves, rollouts and tokens of one run, live
  slimrl view outputs/before outputs/after   two runs, or several seeds, beside each other

The page answers this machine alone. From another one, forward the port: `ssh -L 7717:127.0.0.1:7717 HOST`.
If other users of this machine must not read the runs, set SLIMRL_API_KEY: the browser then asks for it as a password.
An index of the rollouts is kept in RUN/.view/, which can be deleted at any time. See docs/viewer.md.
"""


def run_view(argv: Sequence[str]) -> int:
    """Run `slimrl view RUN ...`: serve the page until a signal. Return the exit status."""
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
    parser.add_argument("--port", type=_port, help=port_help)
    parser.add_argument("--no-open", "--no_open", action="store_true", help="do not open the page in a browser")
    return parser


def _port(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a whole number from 0 to 65535 is needed, and not {text!r}")
    return int(text)
