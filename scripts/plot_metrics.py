"""Draws the metrics of a run, of `train.py` or of any other command of slimrl, and shows them: `slimrl plot RUN`.

uv run python scripts/plot_metrics.py runs/train_20260101_120000
uv run python scripts/plot_metrics.py runs/train_20260101_120000 --output picture.png --no-show
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl_search.scripts.live import show
from slimrl_search.services.server import run_script
from slimrl_tools.commands.plot import PICTURE, plot_run


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--output", type=Path, help="the picture's file; by default RUN/metrics.png")
    parser.add_argument("--no-show", action="store_true", help="write the file, and do not open it")
    arguments = parser.parse_args(argv)
    picture = arguments.output or arguments.run / PICTURE
    print(plot_run(arguments.run, picture))
    if not arguments.no_show:
        show(picture, lambda text: print(text, file=sys.stderr))
    return 0


if __name__ == "__main__":
    run_script(main)
