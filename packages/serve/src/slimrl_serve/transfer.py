"""Implements the routes for weights. New weights come from a directory: all weights of the model, or only an adapter.

All numbers are read into memory and checked first, so a failed update does not change the model.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from slimrl.inference.engine import Engine
from slimrl.io.loop_thread import call_in_daemon
from slimrl.models.adapter import Adapter, is_adapter, read_adapter
from slimrl_serve.bodies import UpdateBody
from slimrl_serve.errors import blame
from slimrl_serve.service import Service
from slimrl_serve.weights import BaseWeights, copy_weights, read_weights

Plain = dict[str, Any]
New = dict[str, Tensor] | Adapter  # the served model's tensors by name, or an adapter of its initial weights


class WeightTransfer:
    """Handles the routes for weights. Only one update runs at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._changing = asyncio.Lock()
        self._base = BaseWeights()

    async def update_weights(self, body: UpdateBody) -> Plain:
        """Replace the weights; running sequences continue with the new weights."""
        async with self._changing:
            with blame("weight_dir"):
                # Reading happens in a thread, while the engine samples; only the copy runs between two steps.
                weights = await call_in_daemon(partial(self._read, Path(body.weight_dir)), "weight update")
                await self._service.thread.call(lambda engine: self._apply(engine, weights, body.version))
        return {"status": "updated", "version": self._service.engine.version}

    async def weight_info(self) -> Plain:
        """Return the version of the weights. The initial weights have the version `default`."""
        return {"weight_version": self._service.version_name(self._service.engine.version)}

    def _read(self, directory: Path) -> New:
        module = self._service.policy.module
        if is_adapter(directory):
            return self._base.mergeable(read_adapter(directory, module), module)
        return read_weights(directory, module)

    def _apply(self, engine: Engine, weights: New, version: int) -> None:
        module = self._service.policy.module
        if isinstance(weights, Adapter):
            self._base.put(weights, engine, module, version)
        else:
            self._base.lose()
            copy_weights(weights, module)
            engine.publish(version)
