"""The attempts of `scripts/test_sandbox.py` tell something: isolated, each fails, and without isolation it succeeds."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from typing import Literal

import pytest

from slimrl_sandbox.attacks import Exploit, exploits
from slimrl_sandbox.audit import Check, run_exploit
from slimrl_sandbox.base import Limits
from slimrl_sandbox.local import BubblewrapSandbox

# What a limit holds, which acts without isolation too, and the environment, which nobody is given.
HELD_ANYWAY = {
    "secrets in the environment",
    "a fork bomb",
    "a memory bomb",
    "memory in page tables",
    "endless output",
    "an endless loop that catches signals",
    "a tool with an endless argument",
}


@pytest.fixture
def port() -> Iterator[int]:
    """One on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield int(listening.getsockname()[1])


def results(chosen: Sequence[Exploit], isolation: Literal["bubblewrap", "none"]) -> dict[str, Check]:
    async def scenario() -> list[Check]:
        async with BubblewrapSandbox({}, Limits(), isolation=isolation, num_spare=0) as sandbox:
            return [await run_exploit(sandbox, exploit, 20.0) for exploit in chosen]

    return {check.name: check for check in asyncio.run(scenario())}


@pytest.mark.slow
def test_isolation_holds_what_it_alone_can_hold(isolated: None, port: int) -> None:
    found = results([exploit for exploit in exploits(port) if exploit.name not in HELD_ANYWAY], "bubblewrap")
    assert [check for check in found.values() if not check.passed] == []


@pytest.mark.slow
def test_the_same_succeeds_without_isolation(isolated: None, port: int) -> None:
    found = results([exploit for exploit in exploits(port) if exploit.name not in HELD_ANYWAY], "none")
    assert [check for check in found.values() if check.passed] == []


def test_what_limits_hold_is_known(port: int) -> None:
    names = [exploit.name for exploit in exploits(port)]
    assert len(names) == len(set(names)) and set(names) >= HELD_ANYWAY
