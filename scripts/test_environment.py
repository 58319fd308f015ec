"""Tests the tools of the running server that `run_environment.py` started: every tool, and every mistake told as text.

    uv run python scripts/run_environment.py
    uv run python scripts/test_environment.py

`.env` may set SANDBOX_PORT and SANDBOX_TOKEN.
"""

import argparse
from collections.abc import Sequence

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from packages.sandbox.tests.attempts.audit import check_tools, report
from slimrl_search.services.container import port_of
from slimrl_search.services.server import run_script


def main(argv: Sequence[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args(argv)
    return report("tools of wiki-search", f"http://127.0.0.1:{port_of()}", check_tools)


if __name__ == "__main__":
    load_dotenv()
    run_script(main)
