"""The sandbox's client under the contract of all HTTP clients (`tests/io/http_contract.py`)."""

import asyncio
from collections.abc import Callable

import pytest

from slimrl_sandbox.base import Execution
from slimrl_sandbox.client import HttpSandbox
from tests.io.http_contract import CASES, KEY, Client
from tests.io.replying import Answer

RAN = {"stdout": "", "stderr": "", "error": "", "duration_s": 0.1, "truncated": False, "calls": []}


def run(root: str, limit_s: float) -> Execution:
    async def work() -> Execution:
        async with HttpSandbox(root, KEY) as sandbox:
            return await sandbox.run("print(1)")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slimrl_sandbox.client._BUSY_S", limit_s)
        return asyncio.run(work())


CLIENT = Client("sandbox", run, lambda _: Answer(200, RAN), repeats=False, takes_any_json=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_client_keeps_the_contract(case: Callable[[Client], None]) -> None:
    case(CLIENT)
