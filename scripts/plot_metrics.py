"""Draws the metrics of a run, of `train.py` or of any other command of slimrl, and shows them: `slimrl plot RUN`.

uv run python scripts/plot_metrics.py runs/train_20260101_120000
uv run python scripts/plot_metrics.py runs/train_20260101_120000 --output picture.png --no-show
"""

import argparse
import sys
from pathlib import Path

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl.errors import UserError
from slimrl_search.scripts.live import open_window
from slimrl_tools.curves.overlay import PICTURE, plot_runs


def main() -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the run's directory")
    parser.add_argument("--output", type=Path, help="the picture's file; by default RUN/metrics.png")
    parser.add_argument("--no-show", action="store_true", help="write the file and open no window")
    arguments = parser.parse_args()
    picture = arguments.output or arguments.run / PICTURE
    try:
        plot_runs([arguments.run], picture)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(picture)
    window = None if arguments.no_show else open_window(arguments.run.name, lambda text: print(text, file=sys.stderr))
    if window and window.show(picture):
        window.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
