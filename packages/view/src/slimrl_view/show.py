"""Shows runs in the browser, from only their files, until Ctrl-C."""

import argparse
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from slimrl.errors import UserError, visible
from slimrl.io.http_access import Access
from slimrl.io.invocation import command_prefix
from slimrl.io.urls import is_loopback
from slimrl_view.api import Api
from slimrl_view.command import KEY, PORT
from slimrl_view.export import export
from slimrl_view.runs import PARENTS, find_runs, open_runs
from slimrl_view.server import Server, bind
from slimrl_view.shown import Run, bring_up_to_date, keep_indexed, open_run

SHOWN_RUNS = 20


def show(args: argparse.Namespace) -> int:
    """Serve the page of the named runs until a signal. With `--export`, write the page to a directory instead. If no
    run is named, list the runs. Return the exit status."""
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


def _export(runs: Sequence[Run], directory: Path, max_rollouts: int) -> int:
    for run in runs:
        bring_up_to_date(run, threading.Event())
        if run.problem:
            raise UserError(run.problem)
    exported = export(runs, directory, max_rollouts)
    size = f"{exported.num_rollouts:,} rollouts, {exported.num_bytes / 2**20:.1f} MB"
    print(visible(f"{directory / 'index.html'}: {size}. It opens in a browser; to send it, send the whole directory."))
    if exported.note:
        print(visible(f"{exported.note} --max_rollouts takes more."))
    return 0


def _list_runs() -> int:
    """Print the runs in the usual directories, with the command to open a run."""
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
