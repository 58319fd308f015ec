"""Tests the isolation of the sandbox: programs try to break out of it.

    uv run python scripts/test_sandbox.py

They run on the server that `run_environment.py` started, in a container or not. Where none runs, one with made-up tools
is started for the test, and code that calls them is tested too: neither corpus nor index is needed.

`.env` may set SANDBOX_PORT and SANDBOX_TOKEN.
"""

import argparse
from collections.abc import Sequence

import check_installed  # noqa: F401  # ends the script where slimrl is missing
from dotenv import load_dotenv

from packages.sandbox.tests.attempts.audit import Check, check_calls, check_isolation, report
from packages.sandbox.tests.attempts.mocks import serve_mocks
from slimrl.io.http import is_healthy
from slimrl_sandbox.base import Sandbox
from slimrl_search.services.container import port_of
from slimrl_search.services.server import run_script

HEALTH_S = 10.0


def main(argv: Sequence[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=raw).parse_args(argv)
    port = port_of()
    running = f"http://127.0.0.1:{port}"
    if is_healthy(running, HEALTH_S):
        return report("attempts to break out", running, lambda sandbox: check_isolation(sandbox, port))
    with serve_mocks() as (address, its_port):

        async def checks(sandbox: Sandbox) -> list[Check]:
            return [*await check_calls(sandbox), *await check_isolation(sandbox, its_port)]

        title = f"calls of made-up tools and attempts to break out; no server runs on port {port}, so this one is new"
        return report(title, address, checks)


if __name__ == "__main__":
    load_dotenv()
    run_script(main)
