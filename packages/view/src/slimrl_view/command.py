"""The `view` command shows runs in the browser, from only their files, until Ctrl-C."""

import argparse
import os
import re
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from slimrl.errors import UserError, nearest, visible
from slimrl.io.http_access import Access
from slimrl.io.invocation import command_prefix
from slimrl.io.urls import is_loopback
from slimrl_view.api import Api
from slimrl_view.export import export
from slimrl_view.indexer import Run, keep_indexed, open_run, wait_until_indexed
from slimrl_view.runs import PARENTS, find_runs, open_runs
from slimrl_view.server import Server, bind

PORT = 7717
KEY = "SLIMRL_API_KEY"
SHOWN_RUNS = 20
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
NO_TERMINAL = (
    "--terminal is gone: leave it out, forward the port (`ssh -L 7717:127.0.0.1:7717 HOST`) and open the page in a "
    "browser, or write the page to files with --export DIR."
)


def run_view(argv: Sequence[str]) -> int:
    """Run `slimrl view RUN ...`: serve the page until a signal, or write it to a directory with `--export`. Return the
    exit status."""
    parser = _parser()
    args, unknown = parser.parse_known_intermixed_args(argv)
    if "--terminal" in unknown:
        raise UserError(NO_TERMINAL)
    if unknown:
        flags = re.findall(r"--[\w-]+", parser.format_usage())
        raise UserError(f"view: there is no option `{unknown[0]}`.{nearest(unknown[0].partition('=')[0], flags)}")
    if not args.runs:
        return _list_runs()
    key = os.environ.get(KEY, "")
    if not args.export and not is_loopback(args.host) and not key:
        raise UserError(
            f"--host {args.host} lets other machines read the runs. Set the variable {KEY} to a key that they have to "
            "know, or leave --host at 127.0.0.1."
        )
    runs = [open_run(directory) for directory in open_runs(args.runs)]
    if args.export:
        return _export(runs, Path(args.export), args.max_rollouts)
    port = PORT if args.port is None else args.port
    server = bind(args.host, port, Api(runs), Access(key, KEY), is_chosen=args.port is not None)
    for number in (signal.SIGINT, signal.SIGTERM):  # even if a shell made this program ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), server, keep_indexed(runs):
        announce(server, [run.directory.shown for run in runs], opens=not args.no_open and _has_display())
        server.serve_forever()
    return 0


def announce(server: Server, shown: Sequence[str], opens: bool) -> None:
    """Print the address of the page, and open it in the browser if `opens`."""
    lines = [f"{', '.join(shown[:3])}{' ...' if len(shown) > 3 else ''} at {server.url()} (Ctrl-C ends it)"]
    address = server.url()
    if server.login.key:
        # A terminal may show the key itself, but a log must not.
        elsewhere, is_log = server.url(elsewhere=True), not sys.stdout.isatty()
        link = f"{elsewhere}?key=KEY, with the value of {KEY} as KEY" if is_log else server.login.address(elsewhere)
        lines.append(f"A browser, here or elsewhere, logs in once by opening {link}")
        address = server.login.address_for_once(server.url())
    print(visible("\n".join(lines)), flush=True)
    if opens:
        # On a thread, because some browsers do not return until they are closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


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


def _export(runs: Sequence[Run], directory: Path, max_rollouts: int) -> int:
    for run in runs:
        wait_until_indexed(run)
    exported = export(runs, directory, max_rollouts)
    size = f"{exported.num_rollouts:,} rollouts, {exported.num_bytes / 2**20:.1f} MB"
    print(visible(f"{directory / 'index.html'}: {size}. It opens in a browser; to send it, send the whole directory."))
    if exported.note:
        print(visible(f"{exported.note} --max_rollouts takes more."))
    return 0


def _list_runs() -> int:
    """Print the runs below the usual directories, with the command to open one."""
    runs = find_runs(path for path in map(Path, PARENTS) if path.is_dir())
    if not runs:
        raise UserError(
            "no run was named, and there is none below outputs/ or runs/. Name the output_dir of a run, as in "
            "`slimrl view outputs/reverse_text`."
        )
    more = [f"  ... and {len(runs) - SHOWN_RUNS} more"] if len(runs) > SHOWN_RUNS else []
    lines = ["Runs here, the newest first:", *(f"  {path}" for path in runs[:SHOWN_RUNS]), *more]
    print(visible("\n".join([*lines, f"Open one, or several:\n  {command_prefix()}slimrl view {runs[0]}"])))
    return 0


def _has_display() -> bool:
    """Return True if a browser can show a window here: not in an ssh session, and not on a machine without a screen."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
