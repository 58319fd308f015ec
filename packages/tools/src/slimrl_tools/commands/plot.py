"""The `plot` command: draws the metrics of runs as a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from slimrl_tools.curves.overlay import PICTURE, plot_runs

EPILOG = """\
One run is drawn as its own training.png: the reward, and what else matters. Several are drawn one over the other, a
panel for each reward, or for each metric that is named; runs whose settings differ in the seed alone are one line,
their mean, in a band that reaches from the lowest to the highest. Faint lines are the values as they were logged, thick
ones are smoothed. A run may still be going on.

  slimrl plot outputs/reverse_text
  slimrl plot outputs/a outputs/b --metric reward/mean --metric loss/entropy
  slimrl plot outputs/seed_0 outputs/seed_1 outputs/seed_2 outputs/other --output seeds.svg

docs/metrics.md says what each metric means; an unknown name is answered with those that the runs have.
"""


def run_plot(argv: Sequence[str]) -> int:
    """Run `slimrl plot RUN [RUN ...]`. Returns the exit status. Raises UserError if it fails."""
    parser = argparse.ArgumentParser(
        prog="slimrl plot", allow_abbrev=False, description="Draws the metrics of runs.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, nargs="+", metavar="RUN", help="output directories of runs")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="NAME", help="a metric to draw; may be given several times"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the picture; its ending is its format (png, svg, pdf, webp ...). "
        f"Without, RUN/{PICTURE}, or plot.png here for several runs",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    only = arguments.run[0] if len(arguments.run) == 1 else None
    output = arguments.output or (only / PICTURE if only else Path("plot.png"))
    plot_runs(arguments.run, output, arguments.metric)
    print(output)
    return 0
