"""The `scale` command: it changes the number of samplers of a running `rl` run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.launch.status import is_supervised, write_scale

EPILOG = """\
Samplers are the parts of a run that need no checkpoint: one that comes is given the newest weights and takes part, and
what one had begun that is ended is sampled anew by the others. `slimrl status RUN` shows them.

  slimrl scale outputs/reverse_text 4

The number holds until the run is started again. At max_async_level = 0 more samplers bring more speed, but no more
episodes at once than the run began with.
Only a run whose samplers `slimrl rl` has started itself can be scaled: --deployment.type processes, or ray.
"""


def run_scale(argv: Sequence[str]) -> int:
    """Run `slimrl scale RUN NUM`. Return the exit status. Raises UserError."""
    parser = argparse.ArgumentParser(
        prog="slimrl scale", allow_abbrev=False, description="Changes the number of samplers of a run that goes on.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="the output directory of a run")
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
