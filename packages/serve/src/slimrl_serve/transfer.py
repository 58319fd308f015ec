"""Receives new weights through vLLM's routes, in three steps: start, updates, finish. The model changes at the finish.

An update names a directory, or the tensors that the trainer will broadcast next. The update contains whole weights, or
only an adapter. Until the finish, the received weights stay in memory. So an interrupted update does not change the
model, and the next start discards it.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.io.loop_thread import call_in_daemon, start_in_daemon
from slimrl.models.adapter import Adapter, is_adapter, known_weights, make_adapter, read_adapter
from slimrl.models.lora import AdapterForm
from slimrl.models.tensor_file import DTYPES as FILE_DTYPES
from slimrl.transport.broadcast import GROUP_S, Meeting, WeightGroup
from slimrl_serve.bodies import CheckBody, FinishBody, InitTransferBody, JoinInfo, UpdateBody, UpdateInfo
from slimrl_serve.errors import bad_request, blame
from slimrl_serve.http.guard import run_unless_gone
from slimrl_serve.service import Service
from slimrl_serve.weights import (
    BaseWeights,
    check_kinds,
    check_numbers,
    copy_weights,
    read_weights,
    weight_checksums,
)

Plain = dict[str, Any]
New = dict[str, Tensor] | Adapter  # the served model's tensors by name, or an adapter of its initial weights
TRAINER = "the broadcast"
GRACE_S = 10.0  # seconds for PyTorch to report its own time-out before ours
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in FILE_DTYPES.values()}


class WeightTransfer:
    """Handles the routes for weights. It holds the unfinished update and the process group for broadcasts, if they
    exist. Only one change runs at a time."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._changing = asyncio.Lock()
        self._group: WeightGroup | None = None
        self._staged: New | None = None
        self._base = BaseWeights()

    @property
    def _module(self) -> nn.Module:
        return self._service.policy.module

    async def init_weight_transfer_engine(self, body: InitTransferBody, request: Request) -> Plain:
        """Join the process group of a trainer that broadcasts weights. For updates from directories send `{}`."""
        if isinstance(body.init_info, JoinInfo):
            await run_unless_gone(self._join(body.init_info), request.receive)
        return {"message": "Weight transfer initialized"}

    async def start_weight_update(self) -> Plain:
        """Start an update that consists of several requests. An earlier unfinished update is discarded."""
        async with self._changing:
            self._staged = {}
        return {"message": "Weight update started"}

    async def update_weights(self, body: UpdateBody, request: Request) -> Plain:
        """Replace the weights; running sequences continue with the new weights. With `update_info`, the weights change
        only at `/finish_weight_update`."""
        if body.update_info:
            await run_unless_gone(self._stage(body.update_info), request.receive, self._break_off)
            return {"status": "received", "version": self._service.engine.version}
        async with self._changing:
            with blame("weight_dir"):
                # Reading happens in a thread, while the engine samples; only the copy runs between two steps.
                weights = await asyncio.to_thread(self._read_directory, body.weight_dir or "")
                await self._replace(weights, body.version)
        return {"status": "updated", "version": self._service.engine.version}

    async def finish_weight_update(self, body: FinishBody | None = None) -> Plain:
        """Start to sample from the received weights, with the version `weight_version`. Without it, the version does
        not change."""
        async with self._changing:
            given = body.weight_version if body else None
            version = self._service.engine.version if given is None else given
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to finish: POST /start_weight_update comes first.")
            with blame("update_info"):
                if isinstance(staged, dict):
                    check_kinds(TRAINER, {name: (tuple(t.shape), t.dtype) for name, t in staged.items()}, self._module)
                    staged = await asyncio.to_thread(check_numbers, TRAINER, staged, self._module)
                await self._replace(staged, int(version))
        return {"message": "Weight update finished"}

    async def weight_info(self) -> Plain:
        """Return the version of the weights. The initial weights have the version `default`."""
        return {"weight_version": self._service.version_name(self._service.engine.version)}

    async def weight_checker(self, body: CheckBody) -> Plain:
        """Return checksums of all weights."""
        module = self._module
        return {"checksums": await self._service.thread.call(lambda engine: weight_checksums(module))}

    async def _join(self, info: JoinInfo) -> None:
        """Leave an earlier group, and join the group of a trainer."""
        device = next(self._module.parameters()).device
        meeting = Meeting(info.master_address, info.master_port, info.rank_offset, info.world_size, device, GROUP_S)
        async with self._changing:
            if self._group:
                self._group.close()
                self._group = None
            try:
                # PyTorch's wait for the other members cannot be interrupted, and never ends if a member is silent.
                async with asyncio.timeout(GROUP_S + GRACE_S):
                    self._group = await call_in_daemon(partial(WeightGroup, meeting), "weight group")
            except TimeoutError:
                where = f"{info.master_address}:{info.master_port}"
                raise bad_request(f"The trainer at {where} was silent for {GROUP_S:g} s.", "init_info") from None
            except UserError as error:
                raise bad_request(str(error), "init_info") from None

    async def _stage(self, info: UpdateInfo) -> None:
        """Receive weights, or a part of the weights, and keep them for the finish. If this fails, the update is
        discarded."""
        async with self._changing:
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to continue: POST /start_weight_update comes first.")
            with blame("update_info"):
                read = (
                    partial(self._read_directory, info.weight_dir) if info.weight_dir else partial(self._receive, info)
                )
                part = await call_in_daemon(read, "weight update")
                if isinstance(staged, dict) and isinstance(part, dict):
                    self._staged = staged | part
                elif staged:
                    raise UserError("An adapter is an update of its own, and whole weights are another.")
                else:
                    self._staged = part

    def _break_off(self, client_left: bool) -> None:
        """Leave the group if the trainer has left during an update, because its broadcast would never finish."""
        if client_left and self._group:
            # PyTorch does not close a group before the broadcast in it has timed out.
            start_in_daemon(self._group.close, "weight group")
            self._group = None

    async def _replace(self, weights: New, version: int) -> None:
        """Copy checked weights into the module between two steps of the engine, and publish them as `version`. Discard
        an unfinished update, because it may be meant for the earlier weights."""
        module, self._staged = self._module, None

        def apply(engine: Engine) -> None:
            if isinstance(weights, Adapter):
                self._base.put(weights, engine, module, version)
            else:
                self._base.lose()
                copy_weights(weights, module)
                engine.publish(version)

        await self._service.thread.call(apply)

    def _read_directory(self, directory: str) -> New:
        path = Path(directory)
        if is_adapter(path):
            return self._base.mergeable(read_adapter(path, self._module), self._module)
        return read_weights(path, self._module)

    def _receive(self, info: UpdateInfo) -> New:
        """Receive the tensors of a broadcast. If this fails, leave the group."""
        group, module = self._group, self._module
        if group is None:
            raise UserError("There is no group to receive in: POST /init_weight_transfer_engine comes first.")
        try:
            if unknown := [name for name in info.dtype_names if name not in DTYPES]:
                raise UserError(f"{unknown[0][:40]!r} is not a known dtype: {', '.join(DTYPES)}.")
            rows = zip(info.names, info.shapes, info.dtype_names, strict=True)
            kinds = {name: (tuple(shape), DTYPES[dtype]) for name, shape, dtype in rows}
            if not info.adapter:
                check_kinds(TRAINER, kinds, module, whole=False)
                return dict(group.receive(kinds))
            form = AdapterForm(info.adapter.rank, info.adapter.scale, info.adapter.base)
            adapter = make_adapter(TRAINER, form, kinds, lambda: group.receive(kinds), known_weights(module))
            return self._base.mergeable(adapter, module)
        except BaseException:
            group.close()  # its members now expect different tensors, and the trainer must not wait for this member
            if self._group is group:  # this server may have joined a new group since the trainer left
                self._group = None
            raise
