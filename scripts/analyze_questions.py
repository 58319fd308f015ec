"""Draws how many questions a policy asks in the matching game over training, and how that goes with its reward.

    uv run python scripts/analyze_questions.py --log_dir outputs/matching --output_dir plots
    uv run python scripts/analyze_questions.py --log_dir outputs/seed0 outputs/seed1 outputs/seed2 --output_dir plots

Reads the runs' rollout files; writes over_training.png and report.md.
"""

import argparse
import sys
from pathlib import Path

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl.errors import UserError, visible
from slimrl_envs.matching_game.analysis import analyze


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = "the directory of a run; of several, if they are seeds of one recipe"
    parser.add_argument("--log_dir", "--log-dir", type=Path, nargs="+", required=True, help=runs)
    parser.add_argument("--output_dir", "--output-dir", type=Path, required=True, help="where to write")
    arguments = parser.parse_args()
    try:
        print("\n".join(map(str, analyze(arguments.log_dir, arguments.output_dir))))
    except UserError as error:
        print(visible(f"error: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
