"""Evaluates a model at searching an encyclopedia, beside somebody who acts at random and a scripted expert.

    uv run python scripts/eval.py
    uv run python scripts/eval.py --model runs/train_20260101_120000/weights/step_3 --split test --num_samples 100

Leaves `runs/eval_YYYYMMDD_HHMMSS` with report.md, failures.md, results.json and every rollout. `.env` may set DATA_DIR,
JUDGE_MODEL and JUDGE_BASE_URL; DEV=1 makes ten pages do.
"""

import os

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl_search.scripts.wiki_search import evaluate
from slimrl_search.services.server import run_script

if __name__ == "__main__":
    load_dotenv()
    run_script(lambda argv: evaluate(argv, os.environ), "to go on, add --output_dir RUN --resume")
