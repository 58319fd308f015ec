"""Takes new weights in the steps of vLLM's routes: start, updates, finish. The weights change at the finish.

An update names a directory, or the tensors that the trainer is about to broadcast: whole weights, or an adapter alone.
Until the finish the parts wait in memory, so an interrupted update changes nothing; the next start discards it.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from fastapi import Request
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.io.loop_thread import call_in_daemon, start_in_daemon
from slimrl.models.adapter import Adapter, is_adapter, known_weights, make_adapter, read_adapter
from slimrl.models.lora import AdapterForm
from slimrl.models.tensor_file import DTYPES as FILE_DTYPES
from slimrl.transport.broadcast import GROUP_S, Kinds, Meeting, WeightGroup
from slimrl_serve.base_weights import BaseWeights
from slimrl_serve.bodies import (
    AdapterInfo,
    AnyUpdateBody,
    BroadcastInfo,
    CheckBody,
    DirectoryInfo,
    FinishBody,
    InitTransferBody,
    JoinInfo,
    NewVersionBody,
    NoInfo,
    UpdateBody,
)
from slimrl_serve.errors import bad_request, blaming
from slimrl_serve.events import unless_gone
from slimrl_serve.service import Service
from slimrl_serve.weights import (
    check_kinds,
    check_numbers,
    check_part,
    copy_weights,
    read_weights,
    weight_checksums,
)

Plain = dict[str, Any]
TRAINER = "the broadcast"
GRACE_S = 10.0  # for PyTorch to report its own time-out before ours
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in FILE_DTYPES.values()}


@dataclass(frozen=True, slots=True)
class NewWeights:
    """New weights for the served model: all of its tensors by name, or an adapter alone."""

    tensors: dict[str, Tensor]
    adapter: Adapter | None = None

    def with_part(self, part: "NewWeights") -> "NewWeights":
        """Return these weights with a further part. Raises UserError if an adapter is not the only part."""
        if self.adapter or (self.tensors and part.adapter):
            raise UserError("An adapter is an update of its own, and whole weights are another.")
        return NewWeights(self.tensors | part.tensors, part.adapter)


class WeightTransfer:
    """The unfinished update, and the group in which weights are broadcast, if any."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._group: WeightGroup | None = None
        self._staged: NewWeights | None = None
        self._base = BaseWeights()

    @property
    def _module(self) -> nn.Module:
        return self._service.model.policy.module

    async def init_weight_transfer_engine(self, body: InitTransferBody, request: Request) -> Plain:
        """Join the process group of a trainer that broadcasts weights, until it leaves; directories need `{}`."""
        await unless_gone(request, self._join(body.init_info))
        return {"message": "Weight transfer initialized"}

    async def start_weight_update(self) -> Plain:
        """Start an update in several calls. An unfinished one is discarded."""
        self._service.check_ready()
        async with self._service.changing:
            self._staged = NewWeights({})
        return {"message": "Weight update started"}

    async def update_weights(self, body: AnyUpdateBody, request: Request) -> Plain:
        """Replace the weights; running sequences continue with the new ones. With `update_info` only at finish."""
        self._service.check_ready()
        if isinstance(body, UpdateBody):
            await self._replace_by(Path(body.weight_dir), body.version)
        else:
            await unless_gone(request, self._stage(body.update_info), self._break_off)
        status = "updated" if isinstance(body, UpdateBody) else "received"
        return {"status": status, "version": self._service.engine.version}

    async def finish_weight_update(self, body: FinishBody | None = None) -> Plain:
        """Sample from the received weights from now on, as `weight_version`; without it the version stays."""
        version = body.weight_version if body else None
        async with self._service.changing:
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to finish: POST /start_weight_update comes first.")
            self._check_no_adapter()
            if staged.adapter is None:
                with blaming("update_info"):
                    staged = NewWeights(await asyncio.to_thread(self._check_whole, staged.tensors))
            await self._replace(staged, None if version is None else int(version), "update_info")
        return {"message": "Weight update finished"}

    async def weight_info(self) -> Plain:
        """Return the version of the weights, `default` for the initial ones."""
        self._service.check_ready()
        return {"weight_version": self._service.version_name(self._service.engine.version)}

    async def update_weight_version(self, body: NewVersionBody) -> Plain:
        """Give the present weights another version."""
        self._service.check_ready()
        version = int(body.new_version)
        async with self._service.changing:
            await self._service.thread.call(lambda engine: engine.publish(version))
        return {"success": True, "new_version": body.new_version}

    async def weight_checker(self, body: CheckBody) -> Plain:
        """Return checksums of all weights, compare them with a baseline, or set all weights to zero."""
        module = self._module
        if body.action == "reset":
            async with self._service.changing:
                self._check_no_adapter()
                zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
                await self._replace(NewWeights(zeros), None, "action")
            return {"status": "reset"}
        if body.action == "compare" and body.baseline is None:
            raise bad_request("action = compare needs a baseline, as the reply to action = checksum.", "baseline")
        sums = await self._service.thread.call(lambda engine: weight_checksums(module))
        if body.baseline is None:
            return {"checksums": sums}
        names = sums.keys() | body.baseline.keys()
        mismatches = sorted(name for name in names if sums.get(name) != body.baseline.get(name))
        return {"match": not mismatches, "mismatches": mismatches}

    async def _join(self, info: JoinInfo | NoInfo) -> None:
        """Join the group of a trainer, in place of an earlier one. Do nothing for directories."""
        device = next(self._module.parameters()).device
        if isinstance(info, NoInfo):
            return
        meeting = Meeting(info.master_address, info.master_port, info.rank_offset, info.world_size, device, GROUP_S)
        if info.rank_offset >= info.world_size:
            raise bad_request(f"rank_offset = {info.rank_offset} is no rank of a group of {info.world_size}.")
        async with self._service.changing:
            if self._group:
                self._group.close()
                self._group = None
            try:
                # PyTorch waits for the other members without interruption, and for a silent one for ever.
                async with asyncio.timeout(GROUP_S + GRACE_S):
                    self._group = await call_in_daemon(partial(WeightGroup, meeting), "weight group")
            except TimeoutError:
                where = f"{info.master_address}:{info.master_port}"
                raise bad_request(f"The trainer at {where} was silent for {GROUP_S:g} s.", "init_info") from None
            except UserError as error:
                raise bad_request(str(error), "init_info") from None

    async def _stage(self, info: DirectoryInfo | BroadcastInfo) -> None:
        """Take weights, or a part of them. If this fails, the update is discarded."""
        async with self._service.changing:
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to continue: POST /start_weight_update comes first.")
            with blaming("update_info"):
                part = await call_in_daemon(partial(self._read, info), "weight update")
                self._staged = staged.with_part(part)

    def _break_off(self, client_left: bool) -> None:
        """Leave the group if the trainer has left during an update, because its broadcast would never finish."""
        if client_left and self._group:
            # PyTorch does not close a group before the broadcast in it has timed out.
            start_in_daemon(self._group.close, "weight group")
            self._group = None

    async def _replace_by(self, directory: Path, version: int) -> None:
        """Take the weights of a directory at once."""
        async with self._service.changing:
            self._check_no_adapter()
            with blaming("weight_dir"):
                # Reading happens in a thread, while the engine samples; only the copy runs between two steps.
                weights = await asyncio.to_thread(self._read_directory, directory)
            await self._replace(weights, version, "weight_dir")

    def _check_no_adapter(self) -> None:
        """Raise ApiError 400 while an adapter is merged into the weights: unloading it would restore old weights."""
        if self._service.adapter:
            raise bad_request(
                f"The adapter `{self._service.adapter}` is merged into the weights; unload it before an update."
            )

    def _check_whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors to copy from a trainer's parts. Raises UserError if some are missing."""
        check_kinds(TRAINER, {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}, self._module)
        return check_numbers(TRAINER, tensors, self._module)

    async def _replace(self, weights: NewWeights, version: int | None, field: str) -> None:
        """Put checked weights into the module between two steps, and publish them as the version. An unfinished update
        is discarded, because it may have been meant for the earlier weights."""
        module, adapter, self._staged = self._module, weights.adapter, None
        if adapter is None:
            self._base.lose()

        def apply(engine: Engine) -> None:
            number = engine.version if version is None else version
            if adapter:
                self._base.put(adapter, engine, module, number)
            else:
                copy_weights(weights.tensors, module)
                engine.publish(number)

        try:
            await self._service.thread.call(apply)
        except UserError as error:
            raise bad_request(str(error), field) from None

    def _read_directory(self, directory: Path) -> NewWeights:
        if not is_adapter(directory):
            return NewWeights(read_weights(directory, self._module))
        return self._checked(read_adapter(directory, self._module))

    def _checked(self, adapter: Adapter) -> NewWeights:
        self._check_no_adapter()  # otherwise its weights would count as the base model's
        self._base.check(adapter, self._module)
        return NewWeights({}, adapter)

    def _read(self, info: DirectoryInfo | BroadcastInfo) -> NewWeights:
        if isinstance(info, DirectoryInfo):
            return self._read_directory(Path(info.weight_dir))
        group = self._group
        if group is None:
            raise UserError("There is no group to receive in: POST /init_weight_transfer_engine comes first.")
        try:
            return self._receive(group, self._kinds(info), info.adapter)
        except BaseException:
            group.close()  # its members are at different places now, and the trainer must not wait for this one
            if self._group is group:  # a new one may have been joined since the trainer left
                self._group = None
            raise

    def _receive(self, group: WeightGroup, kinds: Kinds, info: AdapterInfo | None) -> NewWeights:
        if not info:
            check_part(TRAINER, kinds, self._module)
            return NewWeights(dict(group.receive(kinds)))
        known = known_weights(self._module)
        form = AdapterForm(info.rank, info.scale, info.base)
        return self._checked(make_adapter(TRAINER, form, kinds, lambda: group.receive(kinds), known))

    def _kinds(self, info: BroadcastInfo) -> Kinds:
        """Return the kinds of the tensors of a broadcast. Raises UserError if the lists do not describe tensors."""
        if not len(info.names) == len(info.dtype_names) == len(info.shapes):
            raise UserError("names, dtype_names and shapes must have the same length.")
        if unknown := [name for name in info.dtype_names if name not in DTYPES]:
            raise UserError(f"{unknown[0][:40]!r} is no dtype; known are {', '.join(DTYPES)}.")
        rows = zip(info.names, info.shapes, info.dtype_names, strict=True)
        return {name: (tuple(shape), DTYPES[dtype]) for name, shape, dtype in rows}
