"""Tests the tools of the running server that `run_environment.py` started: every tool, and every mistake told as text.

    uv run python scripts/run_environment.py
    uv run python scripts/test_environment.py

`.env` may set SANDBOX_PORT and SANDBOX_TOKEN.
"""

import sys

from dotenv import load_dotenv

from slimrl.errors import UserError
from slimrl.services.sandbox.audit import check_tools, report
from slimrl.services.sandbox.container import port_of, token_of

if __name__ == "__main__":
    load_dotenv()
    try:
        sys.exit(report("tools of wiki-search", f"http://127.0.0.1:{port_of()}", check_tools, token_of()))
    except UserError as error:
        sys.exit(f"error: {error}")
