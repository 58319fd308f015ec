"""Trains a model to search an encyclopedia: the smallest loop, on the same trainer as `slimrl rl`.

    uv run python scripts/train.py
    uv run python scripts/train.py --num_samples 50 --num_epochs 3 --num_rollouts 4 --live-plot

Leaves `runs/train_YYYYMMDD_HHMMSS` with metrics.json, plots, weights, checkpoints and every rollout. `.env` may set
DATA_DIR, JUDGE_MODEL, JUDGE_BASE_URL, WANDB_PROJECT and WANDB_ENTITY; DEV=1 makes ten pages do.
"""

import os

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl_search.scripts.wiki_search import train
from slimrl_search.services.server import run_script

if __name__ == "__main__":
    load_dotenv()
    run_script(lambda argv: train(argv, os.environ), "to go on, add --output_dir RUN --resume")
