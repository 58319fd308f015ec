"""Tests the isolation of the running server that `run_environment.py` started: programs try to break out of it.

    uv run python scripts/run_environment.py
    uv run python scripts/test_sandbox.py

`.env` may set SANDBOX_PORT and SANDBOX_TOKEN.
"""

import sys

from dotenv import load_dotenv

from slimrl.errors import UserError
from slimrl.services.sandbox.audit import isolation_checks, report
from slimrl.services.sandbox.container import port_of, token_of

if __name__ == "__main__":
    load_dotenv()
    try:
        port = port_of()
        sys.exit(report("attempts to break out", f"http://127.0.0.1:{port}", isolation_checks(port), token_of()))
    except UserError as error:
        sys.exit(f"error: {error}")
