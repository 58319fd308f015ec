"""Tests the components of the matching game and of its training with SLIME: data, environment, partner, counts of
questions, rollout, analysis. Seconds on a CPU; no model, server or key is needed.

    uv run python scripts/test_components.py

Prints `ALL TESTS PASSED!` if they did.
"""

import argparse
import sys

import check_installed  # noqa: F401  # ends the script where slimrl is missing


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args()
    from slimrl_envs.components import CHECKS, run_checks  # loads transformers, for which --help need not wait

    return run_checks(CHECKS)


if __name__ == "__main__":
    sys.exit(main())
