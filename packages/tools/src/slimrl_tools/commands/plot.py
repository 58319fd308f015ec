"""The `plot` command: draws the metrics of a run as a picture."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slimrl.errors import UserError
from slimrl.monitor.plots import draw_training, save_figure
from slimrl.monitor.series import load_series

PICTURE = "metrics.png"  # in the run's directory
EPILOG = """\
The picture is the run's own training.png: the reward, and what else matters. Faint lines are the values as they were
logged, thick ones are smoothed. A run may still be going on. `slimrl view RUN RUN` draws any metric, of several runs.

  slimrl plot outputs/reverse_text --output curves.svg
"""


def run_plot(argv: Sequence[str]) -> int:
    """Run `slimrl plot RUN`. Returns the exit status. Raises UserError if it fails."""
    parser = argparse.ArgumentParser(
        prog="slimrl plot", allow_abbrev=False, description="Draws the metrics of a run.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="the output directory of a run")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="the picture; its ending is its format (png, svg, pdf, webp ...). "
        f"Without, RUN/{PICTURE}",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    print(plot_run(arguments.run, arguments.output or arguments.run / PICTURE))
    return 0


def plot_run(run_dir: Path, output: Path) -> Path:
    """Draw a run, and write the picture to `output`, whose suffix selects the format. Return `output`. Raises UserError
    for a run without metrics, and for a file that cannot be written."""
    kinds = FigureCanvasAgg(Figure()).get_supported_filetypes()
    if output.suffix.removeprefix(".").lower() not in kinds:
        known = ", ".join(sorted(kinds))
        raise UserError(f"--output {output} does not end in a format of pictures, such as `.png`. Known: {known}.")
    return save_figure(draw_training(load_series(run_dir), run_dir.resolve().name), output)
