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
from slimrl_view.api import Api
from slimrl_view.command import KEY, PORT
from slimrl_view.runs import MANY_RUNS, PARENTS, find_runs, open_runs
from slimrl_view.server import bind
from slimrl_view.shown import keep_indexed, open_run


def show(args: argparse.Namespace) -> int:
    """Serve the page of the named runs until a signal. If no run is named, serve those in the usual directories. Return
    the exit status."""
    named = args.runs or [str(path) for path in find_runs(map(Path, PARENTS))[:MANY_RUNS]]
    if not named:
        raise UserError(
            "no run was named, and there is none below outputs/ or runs/. Name the output_dir of a run, as in "
            "`slimrl view outputs/reverse_text`."
        )
    runs = [open_run(directory) for directory in open_runs(named)]
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


def _has_display() -> bool:
    if os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
