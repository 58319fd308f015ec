"""The clients of environments under the contract of all HTTP clients (`tests/io/http_contract.py`)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from slimrl.inference.client import Completion
from slimrl.types import SamplingParams
from slimrl_envs.matching_game.llm_partner import LLMPartners, PartnerServer
from slimrl_envs.openenv.server import schema_of
from slimrl_envs.sglang import Router
from tests.io.http_contract import CASES, KEY, Client
from tests.io.replying import Answer, completion


def ask_partner(root: str, limit_s: float) -> str:
    partners = LLMPartners(PartnerServer(f"{root}/v1", timeout_s=limit_s))
    try:
        return asyncio.run(partners.reply([{"role": "user", "content": "Hello"}])).text
    finally:
        partners.close()


def ask_router(root: str, limit_s: float) -> Completion:
    async def work() -> Completion:
        async with Router(root, limit_s, patience_s=limit_s).client({}, 2) as client:
            return await client.sample([1, 2, 3], SamplingParams(max_tokens=5))

    return asyncio.run(work())


def ask_schema(root: str, limit_s: float) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slimrl_envs.openenv.server.PAGE_S", limit_s)
        return schema_of(root)


SAMPLED = Answer(200, {"meta_info": {"finish_reason": "stop", "output_token_logprobs": [[-0.5, 11, None]]}})
CLIENTS = [
    Client("partner", ask_partner, lambda _: completion("[accept]")),
    Client("router", ask_router, lambda _: SAMPLED, key=""),
    Client("schema", ask_schema, lambda _: Answer(200, {"action": {"properties": {}}}), repeats=False, key=""),
]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_client_keeps_the_contract(case: Callable[[Client], None], client: Client) -> None:
    case(client)
