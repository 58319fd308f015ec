"""The `status` command: it shows the parts of a run, which of them wait, and the progress."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl_cluster.launch.status import find_status

EPILOG = """\
Reads the run's directory alone, so it can be asked on any machine that sees it, while the run goes on or after its end.
A part that waits is shown with whom it waits for and since when; one that was started and is not ready yet loads its
model, or waits for a node of the cluster.

  slimrl status outputs/reverse_text
  slimrl status outputs/reverse_text --watch 5

docs/deployment.md says what the parts are.
"""


def run_status(argv: Sequence[str]) -> int:
    """Run `slimrl status RUN`. Return the exit status. Raises UserError."""
    parser = argparse.ArgumentParser(
        prog="slimrl status", allow_abbrev=False, description="Says who does what in a run, and how far it is.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="the output directory of a run")
    parser.add_argument("--watch", type=float, metavar="SECONDS", help="ask again and again, until Ctrl-C")
    arguments = parser.parse_args(argv)
    console = RunConsole()
    while True:
        _show(arguments.run, console)
        if arguments.watch is None:
            return 0
        time.sleep(max(0.1, arguments.watch))


def _show(run: Path, console: RunConsole) -> None:
    status = find_status(run)
    console.note(status.summary, style="bold")
    if status.parts:
        console.show(for_terminal(Cells("", (("part", "process", "does"), *status.parts)), console.is_live))
    for note in status.notes:
        console.note(note)
