"""A client over samplers says so when it cannot see any more which of them are there."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from slimrl.types import SamplingParams
from slimrl_cluster.inference.replicas import Replicas
from slimrl_cluster.inference.server_link import SamplerAddress


class Ready:
    """A client whose sampler is ready at once and answers all with nothing."""

    async def held_version(self) -> str:
        return "default"

    async def sample(self, prompt: list[int], params: SamplingParams) -> Any:
        return None

    def close(self) -> None:
        pass


def test_who_cannot_look_who_is_there_does_not_go_on_as_if_all_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl_cluster.inference.replicas.POLL_S", 0.01)
    is_broken = False

    def find() -> Mapping[str, SamplerAddress]:
        if is_broken:
            raise OSError("Stale file handle")
        return {"a": SamplerAddress("http://127.0.0.1:1")}

    replicas = Replicas(find, lambda address: Ready(), lambda line: None, 5.0)  # type: ignore[arg-type, return-value]
    asyncio.run(replicas.sample([1], SamplingParams(max_tokens=1)))
    is_broken = True
    time.sleep(0.1)
    with pytest.raises(OSError, match="Stale file handle"):
        asyncio.run(replicas.sample([1], SamplingParams(max_tokens=1)))
    replicas.close()
