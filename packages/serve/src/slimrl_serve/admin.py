"""Administers the server: pause and resume, new weights, adapters. Changes happen between two steps of the engine.

When the weights change, running sequences keep their keys and values and continue with the new weights. Each token
records the version that sampled it. A loaded adapter is merged into the weights and would answer requests to the base
model, so only its own name is served. The name changes before the weights do, so that no request is accepted under a
name whose weights are about to be replaced.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query

from slimrl.inference.engine import Engine
from slimrl.models.adapter import Adapter, read_adapter
from slimrl_serve.base_weights import NO_ADAPTER, BaseWeights
from slimrl_serve.bodies import AbortBody, LoadAdapterBody, UnloadAdapterBody
from slimrl_serve.errors import ApiError, bad_request, blaming
from slimrl_serve.service import Service
from slimrl_serve.worker import PauseMode


class Administration:
    """Implements the routes that stop sampling or merge adapters, one change at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._base = BaseWeights()

    async def pause(
        self,
        mode: PauseMode = "keep",
        clear_cache: Annotated[bool, Query(description="without effect, as in vLLM: new weights clear it")] = True,
    ) -> dict[str, Any]:
        """Stop sampling until `/resume`: running requests wait (`keep`), or run to completion first (`wait`), or stop
        with their present tokens (`abort`)."""
        self._service.check_ready()
        await self._service.thread.pause(mode)
        return {"status": "paused", "version": self._service.engine.version}

    async def resume(self) -> dict[str, Any]:
        """Continue sampling."""
        self._service.check_ready()
        await self._service.thread.resume()
        return {"status": "running", "version": self._service.engine.version}

    async def is_paused(self) -> dict[str, Any]:
        """Report if sampling has stopped, or is about to. The engine answers, so a reply shows that it is alive."""
        thread = self._service.thread
        self._service.check_ready()
        return {"is_paused": await thread.call(lambda engine: thread.paused or thread.holding)}

    async def abort_requests(self, body: AbortBody) -> dict[str, Any]:
        """Stop requests and return their present tokens; their `finish_reason` is `abort`."""
        self._service.check_ready()
        names = set(body.request_ids)
        return {"status": "aborted", "aborted": await self._service.thread.abort(lambda job: job.request_id in names)}

    async def load_lora_adapter(self, body: LoadAdapterBody) -> str:
        """Merge a LoRA adapter into the weights; it replaces an adapter of the same name."""
        service, module = self._service, self._service.model.policy.module
        async with self._service.changing:
            if service.adapter and service.adapter != body.lora_name:
                raise bad_request(
                    f"The adapter `{service.adapter}` is loaded, and there can be only one. Unload it first.",
                    "lora_name",
                )
            if body.lora_name == service.base_name:
                raise bad_request("An adapter cannot have the name of the base model.", "lora_name")
            with blaming("lora_path"):
                adapter = await asyncio.to_thread(read_adapter, Path(body.lora_path), module)
            with self._serve_as(body.lora_name):
                await service.thread.call(lambda engine: self._replace(engine, adapter, body.version))
        return f"Success: LoRA adapter '{body.lora_name}' added successfully."

    async def unload_lora_adapter(self, body: UnloadAdapterBody) -> str:
        """Restore the weights from before the adapter was merged."""
        service = self._service
        service.check_ready()
        async with self._service.changing:
            if service.adapter != body.lora_name:
                raise ApiError(404, f"The adapter `{body.lora_name}` is not loaded.", param="lora_name")
            with self._serve_as(""):
                await service.thread.call(lambda engine: self._replace(engine, NO_ADAPTER, body.version))
        return f"Success: LoRA adapter '{body.lora_name}' removed successfully."

    @contextmanager
    def _serve_as(self, adapter: str) -> Iterator[None]:
        """Serve under this name immediately; restore the old name if the block fails."""
        before = self._service.adapter
        self._service.adapter = adapter
        try:
            yield
        except BaseException:
            self._service.adapter = before
            raise

    def _replace(self, engine: Engine, adapter: Adapter, version: int | None) -> None:
        """Merge the adapter into the base model's weights. If it raises, nothing has changed."""
        number = max(engine.version, 0) + 1 if version is None else version
        self._base.put(adapter, engine, self._service.model.policy.module, number)
