"""Implements two commands: `status` shows the parts and the progress of a run, `scale` changes its number of
samplers."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl_cluster.launch.status import find_status, is_supervised, write_scale

OF_STATUS = """\
Reads the run's directory alone, so it can be asked on any machine that sees it, while the run goes on or after its end.
A part that waits is shown with whom it waits for and since when; one that was started and is not ready yet loads its
model, or waits for a node of the cluster.

  slimrl status outputs/reverse_text

docs/deployment.md says what the parts are.
"""
OF_SCALE = """\
Samplers are the parts of a run that need no checkpoint: one that comes is given the newest weights and takes part, and
what one had begun that is ended is sampled anew by the others. `slimrl status RUN` shows them.

  slimrl scale outputs/reverse_text 4

The number holds until the run is started again. At max_async_level = 0 more samplers bring more speed, but no more
episodes at once than the run began with.
Only a run whose samplers `slimrl rl` has started itself can be scaled: --deployment.type processes, or ray.
"""


def run_status(argv: Sequence[str]) -> int:
    """Run `slimrl status RUN`. Return the exit status. Raises UserError if the directory holds no run."""
    parser = _parser("status", "Says who does what in a run, and how far it is.", OF_STATUS)
    status, console = find_status(parser.parse_args(argv).run), RunConsole()
    console.note(status.summary, style="bold")
    if status.parts:
        console.show(for_terminal(Cells("", (("part", "process", "does"), *status.parts)), console.is_live))
    for note in status.notes:
        console.note(note)
    return 0


def run_scale(argv: Sequence[str]) -> int:
    """Run `slimrl scale RUN NUM`. Return the exit status. Raises UserError if the run cannot be scaled."""
    parser = _parser("scale", "Changes the number of samplers of a run that goes on.", OF_SCALE)
    parser.add_argument("num", type=int, metavar="NUM", help="how many samplers it shall have, from 1 on")
    arguments = parser.parse_args(argv)
    if arguments.num < 1:
        raise UserError(f"a run needs a sampler: {arguments.num} is too few. Ctrl-C ends a run.")
    if not is_supervised(RunDir(arguments.run)):
        raise UserError(
            f"{arguments.run} has no samplers that could be more or fewer: it has ended, is one process, or its parts "
            "were started by hand. `slimrl status` says what there is."
        )
    write_scale(RunDir(arguments.run), arguments.num)
    print(f"{arguments.run} is wanted to have {arguments.num} samplers; `slimrl status` shows when it has")
    return 0


def _parser(name: str, about: str, epilog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"slimrl {name}", allow_abbrev=False, description=about, epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="the output directory of a run")
    return parser
