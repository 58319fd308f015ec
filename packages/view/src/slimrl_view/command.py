"""The `view` command: shows runs in the browser, from their files alone, until Ctrl-C."""

import argparse
import os
import re
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from slimrl.errors import UserError, nearest, visible
from slimrl.io.http_access import Access
from slimrl.io.invocation import command_prefix
from slimrl.io.urls import is_loopback
from slimrl.plugins import call
from slimrl_view.api import Api
from slimrl_view.export import export
from slimrl_view.indexer import Indexer, Run, open_run, wait_until_indexed
from slimrl_view.runs import PARENTS, find_runs, open_runs
from slimrl_view.server import Server, bind

PORT = 7717
KEY = "SLIMRL_API_KEY"
SHOWN_RUNS = 20
MAX_ROLLOUTS = 2000
EPILOG = """\
A RUN is the output_dir of `slimrl rl`, `sft` or `eval`, also while it goes on, on this machine or copied from another.
A directory of runs stands for all of them. Without a RUN, those below outputs/ and runs/ are listed.

  slimrl view outputs/reverse_text                 curves, rollouts and tokens of one run, live
  slimrl view outputs/before outputs/after         two runs, or several seeds, beside each other
  slimrl view outputs/reverse_text --terminal      without a browser (`pip install 'slimrl[terminal]'`)
  slimrl view outputs/reverse_text --export page   the same as files: open page/index.html, or send the directory

The page answers this machine alone. From another one, forward the port: `ssh -L 7717:127.0.0.1:7717 HOST`.
What it needs to find rollouts it keeps in RUN/.view/, which can be deleted at any time. See docs/viewer.md.
"""


def run_view(argv: Sequence[str]) -> int:
    """Runs `slimrl view RUN ...`: serves the page until a signal, writes it to a directory with `--export`, or shows
    the runs in the terminal with `--terminal`."""
    parser = _parser()
    args, unknown = parser.parse_known_intermixed_args(argv)
    if unknown:
        flags = re.findall(r"--[\w-]+", parser.format_usage())
        raise UserError(f"view: there is no option `{unknown[0]}`.{nearest(unknown[0].partition('=')[0], flags)}")
    if not args.runs:
        return _list_runs()
    runs = [open_run(directory) for directory in open_runs(args.runs)]
    if args.export:
        return _export(runs, Path(args.export), args.max_rollouts)
    if args.terminal:
        with Indexer(runs):
            call("slimrl_view.terminal.app:show", runs)  # loads Textual, which is an extra
        return 0
    key = os.environ.get(KEY, "")
    if not is_loopback(args.host) and not key:
        raise UserError(
            f"--host {args.host} lets other machines read the runs. Set the variable {KEY} to a key that they have to "
            "know, or leave --host at 127.0.0.1."
        )
    port = PORT if args.port is None else args.port
    access = Access(key, KEY)
    server = bind(args.host, port, Api(runs), access, is_chosen=args.port is not None)
    with _signals() as stopped, Indexer(runs), _serve(server):
        _announce(server, [run.directory.shown for run in runs], opens=not args.no_open)
        stopped.wait()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimrl view",
        description="Shows runs in the browser, live, from their files alone: curves, groups, rollouts, tokens.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="directories of runs")
    parser.add_argument("--port", type=_port, help=f"port of the page; {PORT} by default, or the next that is free")
    parser.add_argument(
        "--host", default="127.0.0.1", help=f"address to listen on; another than this machine's needs {KEY}"
    )
    parser.add_argument("--no-open", "--no_open", action="store_true", help="do not open the page in a browser")
    parser.add_argument("--terminal", action="store_true", help="show the runs in this terminal, as over ssh")
    parser.add_argument("--export", metavar="DIR", help="write the page with its data to a directory, and end")
    parser.add_argument(
        "--max_rollouts",
        "--max-rollouts",
        type=_count,
        default=MAX_ROLLOUTS,
        metavar="N",
        help=f"most training rollouts of a run in an export, and most of its evaluations; {MAX_ROLLOUTS} by default",
    )
    return parser


def _export(runs: Sequence[Run], directory: Path, max_rollouts: int) -> int:
    for run in runs:
        wait_until_indexed(run)
    exported = export(runs, directory, max_rollouts)
    size = f"{exported.num_rollouts:,} rollouts, {exported.num_bytes / 2**20:.1f} MB"
    print(visible(f"{directory / 'index.html'}: {size}. It opens in a browser; to send it, send the whole directory."))
    if exported.note:
        print(visible(f"{exported.note} --max_rollouts takes more."))
    return 0


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"a number from 1 on is needed, and not {text!r}")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, and not {text!r}")
    return int(text)


def _list_runs() -> int:
    """Print the runs below the usual directories, and how to open one."""
    runs = find_runs(path for path in map(Path, PARENTS) if path.is_dir())
    if not runs:
        raise UserError(
            "no run was named, and there is none below outputs/ or runs/. Name the output_dir of a run, as in "
            "`slimrl view outputs/reverse_text`."
        )
    print("Runs here, the newest first:")
    for path in runs[:SHOWN_RUNS]:
        print(visible(f"  {path}"))
    if len(runs) > SHOWN_RUNS:
        print(f"  ... and {len(runs) - SHOWN_RUNS} more")
    print(visible(f"Open one, or several:\n  {command_prefix()}slimrl view {runs[0]}"))
    return 0


@contextmanager
def _serve(server: Server) -> Iterator[None]:
    """Serve on a thread of its own inside the `with` block."""
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _announce(server: Server, shown: Sequence[str], opens: bool) -> None:
    said = [f"{', '.join(shown[:3])}{' ...' if len(shown) > 3 else ''} at {server.url} (Ctrl-C ends it)"]
    if server.login.key:
        # The key itself is for the person at a terminal, and not for a log.
        elsewhere, is_log = server.url_elsewhere, not sys.stdout.isatty()
        link = f"{elsewhere}?key=KEY, with the value of {KEY} as KEY" if is_log else server.login.address(elsewhere)
        said.append(f"A browser, here or elsewhere, logs in once by opening {link}")
    print(visible("\n".join(said)), flush=True)
    if opens and _has_display():
        address = server.login.address_for_once(server.url) if server.login.key else server.url
        # On a thread, because some browsers do not return before they are closed.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _has_display() -> bool:
    """Whether a browser can show a window here: not in an ssh session, and not on a machine without a screen."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGTERM or Ctrl-C sets."""
    stopped = threading.Event()
    kinds = (signal.SIGTERM, signal.SIGINT)
    earlier = {number: signal.signal(number, lambda *_: stopped.set()) for number in kinds}
    try:
        yield stopped
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
