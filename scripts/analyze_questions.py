"""Draws how many questions a policy asks in the matching game over training, and how that goes with its reward.

    uv run python scripts/analyze_questions.py --log_dir outputs/matching --output_dir plots
    uv run python scripts/analyze_questions.py --log_dir outputs/seed0 outputs/seed1 outputs/seed2 --output_dir plots

Reads the runs' rollout files; writes over_training.png, questions_and_reward.png, summary.json and report.md.
"""

import sys

import check_installed  # noqa: F401  # ends the script where slimrl is missing

from slimrl_envs.matching_game.analysis.compare import main

if __name__ == "__main__":
    sys.exit(main(description=__doc__))
