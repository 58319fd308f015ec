"""Shows runs in the browser, from only their files, until Ctrl-C."""

import argparse
import os
import signal
import sys
import threading
import webbrowser
from contextlib import suppress
from pathlib import Path

from slimrl.errors import UserError, visible
from slimrl.io.http_access import Access
from slimrl.io.invocation import command_prefix
from slimrl_view.api import Api
from slimrl_view.command import KEY, PORT
from slimrl_view.runs import PARENTS, find_runs, open_runs
from slimrl_view.server import bind
from slimrl_view.shown import keep_indexed, open_run

SHOWN_RUNS = 20


def show(args: argparse.Namespace) -> int:
    """Serve the page of the named runs until a signal. If no run is named, list the runs. Return the exit status."""
    if not args.runs:
        return _list_runs()
    runs = [open_run(directory) for directory in open_runs(args.runs)]
    access = Access(os.environ.get(KEY, ""), KEY)
    server = bind(PORT if args.port is None else args.port, Api(runs), access, is_chosen=args.port is not None)
    for number in (signal.SIGINT, signal.SIGTERM):  # even if a shell made this program ignore Ctrl-C
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), server, keep_indexed(runs):
        shown = [run.directory.shown for run in runs]
        names = f"{', '.join(shown[:3])}{' ...' if len(shown) > 3 else ''}"
        login = f"; the browser asks for a password, the value of {KEY}" if access.key else ""
        print(visible(f"{names} at {server.url} (Ctrl-C ends it){login}"), flush=True)
        if not args.no_open and _has_display():
            # On a thread, because some browsers do not return until they are closed.
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        server.serve_forever()
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
