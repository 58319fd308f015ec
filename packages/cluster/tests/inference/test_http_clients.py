"""The link to a sampler under the contract of all HTTP clients (`tests/io/http_contract.py`)."""

from collections.abc import Callable
from typing import Any

import pytest

from slimrl_cluster.inference.server_link import SamplerAddress, ServerLink
from tests.io.http_contract import CASES, KEY, Client
from tests.io.replying import Answer


def ask(root: str, limit_s: float) -> Any:
    link = ServerLink(SamplerAddress(root, KEY, limit_s))
    try:
        return link.wait(link.get("/weight_info"))
    finally:
        link.close()


LINK = Client("link", ask, lambda _: Answer(200, {"weight_version": "1"}), takes_any_json=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_link_keeps_the_contract(case: Callable[[Client], None]) -> None:
    case(LINK)
