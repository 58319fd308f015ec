"""The client for a server that samples: slimrl's own, or vLLM's, which both take token ids and give token ids.

Requests go through an event loop in a thread of its own, since connections outlive the loop of a step. A server that is
away or busy is asked again; one that gives no sign of life for `timeout_s` ends the run, and is named.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.inference.client import Completion, FinishReason
from slimrl.io.http import BUSY, PASSING, backoff_s, http_client, import_httpx, redact_key, retry_after_s
from slimrl.io.loop_thread import LoopThread
from slimrl.types import SamplingParams

WHO = "sampler"
NUM_CONCURRENT = 4096
HEALTH_S = 10.0  # between two looks at a server that has not answered yet


@dataclass(frozen=True, slots=True)
class SamplerAddress:
    """Where a sampler is: its address without a path, its key, and how long it may give no sign of life."""

    base_url: str
    key: str = ""
    timeout_s: float = 120.0


class RemoteClient:
    """An `inference.client.Client` of a server. `update_weights` has the server read a directory of weights."""

    def __init__(self, address: SamplerAddress) -> None:
        self._address = address
        self._httpx = import_httpx("a sampler behind HTTP")
        self._thread = LoopThread(WHO)
        self._http = http_client(self._httpx, WHO, address.base_url, address.key, NUM_CONCURRENT)
        self._thread.keep(self._http.aclose)
        self._seen_s = time.monotonic()
        self.version = 0

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Sample until a stop token, a stop string, `max_tokens` or the end of the context. Cancelling frees the place
        at the server. Raises UserError if the server cannot be used."""
        body = {
            "token_ids": prompt,
            "sampling_params": {
                "max_tokens": params.max_tokens,
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": params.top_k or -1,
                "min_p": params.min_p,
                "seed": params.seed,
                "stop": list(params.stop),
                "include_stop_str_in_output": True,
                "logprobs": 0,
            },
        }
        version = self.version
        content = await self._thread.run(self._ask("/inference/v1/generate", body))
        try:
            choice = json.loads(content)["choices"][0]
            token_ids = tuple(map(int, choice["token_ids"]))
            logprobs = tuple(float(one["logprob"]) for one in choice["logprobs"]["content"])
            versions = tuple(map(int, choice.get("token_versions") or (version,) * len(token_ids)))
            if not token_ids or not len(token_ids) == len(logprobs) == len(versions):
                raise ValueError(
                    f"{len(token_ids)} tokens, {len(logprobs)} log-probabilities, {len(versions)} versions"
                )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"the {WHO} at {self._address.base_url} gives no token ids with log-probabilities ({error!r}), but "
                f"{content[:200]!r}."
            ) from error
        finish: FinishReason = "length" if choice.get("finish_reason") == "length" else "stop"
        return Completion(token_ids, logprobs, versions, finish)

    def update_weights(self, directory: Path, version: int) -> None:
        """Has the server sample from these weights from now on. Raises UserError if it does not."""
        body = {"weight_dir": str(directory.resolve()), "version": version}
        self._thread.wait(self._ask("/update_weights", body))
        self.version = version

    def close(self) -> None:
        """Closes the connections."""
        self._thread.close()

    async def _ask(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The body of a successful response. While there is none, the server is looked at now and then."""
        asked = asyncio.create_task(self._post(path, body))
        try:
            while not (await asyncio.wait({asked}, timeout=HEALTH_S))[0]:
                await self._look()
            return asked.result()
        finally:
            asked.cancel()

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        began, tries = time.monotonic(), 0
        while True:
            try:
                response = await self._http.post(f"{self._address.base_url}{path}", json=body)
                status, content = response.status_code, redact_key(response.content, self._address.key)
                wait_s = retry_after_s(response.headers)
            except self._httpx.TransportError as error:
                status, content, wait_s = 0, f"{type(error).__name__}: {error}".encode(), 0.0
            if status:
                self._seen_s = time.monotonic()
            if status == 200:
                return bytes(content)
            said = content[:300].decode("utf-8", "replace")
            if status and status not in BUSY | PASSING:
                raise UserError(f"the {WHO} at {self._address.base_url}{path} answers {status}: {said}")
            if time.monotonic() - max(began, self._seen_s if status else began) > self._address.timeout_s:
                raise self._loss(said)
            tries += 1
            await asyncio.sleep(max(wait_s, backoff_s(tries, 1.0)))

    async def _look(self) -> None:
        """Raises UserError if the server has given no sign of life for too long."""
        try:
            async with asyncio.timeout(HEALTH_S):
                await self._http.get(f"{self._address.base_url}/health")
            self._seen_s = time.monotonic()
        except (TimeoutError, self._httpx.TransportError) as error:
            if time.monotonic() - self._seen_s > self._address.timeout_s:
                raise self._loss(f"{type(error).__name__} at /health") from error

    def _loss(self, said: str) -> UserError:
        since = time.monotonic() - self._seen_s
        return UserError(
            f"the {WHO} at {self._address.base_url} has given no sign of life for {since:.0f} s ({said}). Start it "
            "again, and continue with `--resume`."
        )
