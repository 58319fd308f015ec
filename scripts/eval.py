"""Evaluates a model at searching an encyclopedia, beside somebody who acts at random and a scripted expert.

    uv run python scripts/eval.py
    uv run python scripts/eval.py --model runs/train_20260101_120000/weights/step_3 --split test --num_samples 100

Leaves `runs/eval_YYYYMMDD_HHMMSS` with report.md, failures.md, results.json and every rollout. `.env` may set DATA_DIR,
JUDGE_MODEL and JUDGE_BASE_URL; DEV=1 makes ten pages do.
"""

import os
import sys

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from slimrl.errors import UserError
from slimrl_search.scripts.wiki_search import evaluate


def main() -> int:
    load_dotenv()
    try:
        return evaluate(sys.argv[1:], os.environ)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; to go on, add --output_dir RUN --resume", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
