"""`scripts/test_sandbox.py` where no server runs: one with made-up tools is started for it, and ended."""

import asyncio
import math

import pytest

from packages.sandbox.tests.attempts.audit import Check, check_calls, is_up
from packages.sandbox.tests.attempts.mocks import PAGE, serve_mocks
from slimrl.errors import UserError
from slimrl_sandbox.base import Execution
from slimrl_sandbox.client import HttpSandbox


@pytest.mark.slow
def test_the_checks_pass_on_a_server_of_its_own_which_ends(isolated: None) -> None:
    async def ask(address: str) -> list[Check]:
        async with HttpSandbox(address) as sandbox:
            return await check_calls(sandbox, PAGE)

    with serve_mocks() as (address, port):
        assert address.endswith(f":{port}") and is_up(address)
        checks = asyncio.run(ask(address))
    assert len(checks) == 5 and all(check.passed for check in checks), checks
    assert not is_up(address)


def test_the_checks_fail_where_nothing_runs() -> None:
    class Silent:
        """Runs nothing."""

        async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
            return Execution("", "", "", 0.0, False)

    assert not any(check.passed for check in asyncio.run(check_calls(Silent(), PAGE)))


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setenv("PATH", "")  # where bubblewrap would be looked for
    monkeypatch.setattr("packages.sandbox.tests.attempts.mocks.PLACE", "nowhere:tools")
    with pytest.raises(UserError, match="did not start"), serve_mocks():
        pass
    assert "--tools nowhere:tools" in capfd.readouterr().err
