"""Takes new weights in the steps of vLLM's routes: start, one or more updates, finish. The weights change at the end.

An update names a directory, or what the trainer is about to broadcast. Until the finish the parts wait in memory, so an
update that breaks off changes nothing; the next start begins anew.
"""

import asyncio
from pathlib import Path

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.inference.server.bodies import BroadcastInfo, CheckBody, DirectoryInfo, JoinInfo, NoInfo
from slimrl.inference.server.errors import bad_request
from slimrl.inference.server.service import Service
from slimrl.inference.server.weights import (
    check_kinds,
    check_numbers,
    check_part,
    copy_weights,
    read_weights,
    weight_checksums,
)
from slimrl.models.tensor_file import ALL_DTYPES
from slimrl.transport.broadcast import GROUP_S, Kinds, Meeting, WeightGroup

TRAINER = "the broadcast"
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in ALL_DTYPES.values()}


class WeightTransfer:
    """The update that is under way, and the group in which weights are broadcast, if there is one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._group: WeightGroup | None = None
        self._staged: dict[str, Tensor] | None = None

    @property
    def _module(self) -> nn.Module:
        return self._service.model.policy.module

    async def init(self, info: JoinInfo | NoInfo) -> None:
        """Join the group of a trainer, in place of an earlier one. For directories there is nothing to do."""
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
                self._group = await asyncio.to_thread(WeightGroup, meeting)
            except UserError as error:
                raise bad_request(str(error), "init_info") from None

    async def start(self) -> None:
        """Begin an update; what an earlier one has received is forgotten."""
        self._service.check_ready()
        async with self._service.changing:
            self._staged = {}

    async def receive(self, info: DirectoryInfo | BroadcastInfo) -> None:
        """Take weights, or a part of them. If that fails the update has ended."""
        async with self._service.changing:
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to continue: POST /start_weight_update comes first.")
            try:
                found = await asyncio.to_thread(self._read, info)
            except (UserError, ValueError, OSError) as error:  # a path may have a NUL in it, or be too long
                raise bad_request(str(error), "update_info") from None
            self._staged = staged | found

    async def finish(self, version: int | None) -> None:
        """Sample from the new weights from now on. Without a number for them it stays what it was."""
        async with self._service.changing:
            staged, self._staged = self._staged, None
            if staged is None:
                raise bad_request("There is no update to finish: POST /start_weight_update comes first.")
            self.check_no_adapter()
            module = self._module
            try:
                check_kinds(TRAINER, {name: (tuple(t.shape), t.dtype) for name, t in staged.items()}, module)
                weights = await asyncio.to_thread(check_numbers, TRAINER, staged, module)
            except UserError as error:
                raise bad_request(str(error), "update_info") from None
            await self.publish(weights, version)

    def check_no_adapter(self) -> None:
        """Raises ApiError 400 while an adapter is merged into the weights: unloading it would bring back old ones."""
        if self._service.adapter:
            raise bad_request(
                f"The adapter `{self._service.adapter}` is merged into the weights; unload it before an update."
            )

    async def publish(self, weights: dict[str, Tensor], version: int | None) -> None:
        """Copy checked weights into the module between two steps, and give the version its number."""
        service, module = self._service, self._module

        def apply(engine: Engine) -> None:
            copy_weights(weights, module)
            engine.publish(engine.version if version is None else version)

        await service.thread.call(apply)

    async def check(self, body: CheckBody) -> dict[str, object]:
        """The reply of `/weight_checker`."""
        module = self._module
        if body.action == "reset":
            async with self._service.changing:
                self.check_no_adapter()
                await self.publish({name: torch.zeros_like(p) for name, p in module.named_parameters()}, None)
            return {"status": "reset"}
        if body.action == "compare" and body.baseline is None:
            raise bad_request("action = compare needs a baseline, as the reply to action = checksum.", "baseline")
        sums = await self._service.thread.call(lambda engine: weight_checksums(module))
        if body.baseline is None:
            return {"checksums": sums}
        names = sums.keys() | body.baseline.keys()
        mismatches = sorted(name for name in names if sums.get(name) != body.baseline.get(name))
        return {"match": not mismatches, "mismatches": mismatches}

    def _read(self, info: DirectoryInfo | BroadcastInfo) -> dict[str, Tensor]:
        if isinstance(info, DirectoryInfo):
            return read_weights(Path(info.weight_dir), self._module)
        if self._group is None:
            raise UserError("There is no group to receive in: POST /init_weight_transfer_engine comes first.")
        try:
            kinds = self._kinds(info)
            check_part(TRAINER, kinds, self._module)
            return dict(self._group.receive(kinds))
        except UserError:
            self._group.close()  # its members are at different places now, and the trainer must not wait for this one
            self._group = None
            raise

    def _kinds(self, info: BroadcastInfo) -> Kinds:
        """What the trainer will broadcast. Raises UserError if the lists do not describe tensors."""
        if not len(info.names) == len(info.dtype_names) == len(info.shapes):
            raise UserError("names, dtype_names and shapes must have the same length.")
        if unknown := [name for name in info.dtype_names if name not in DTYPES]:
            raise UserError(f"{unknown[0][:40]!r} is no dtype; known are {', '.join(DTYPES)}.")
        rows = zip(info.names, info.shapes, info.dtype_names, strict=True)
        return {name: (tuple(shape), DTYPES[dtype]) for name, shape, dtype in rows}
