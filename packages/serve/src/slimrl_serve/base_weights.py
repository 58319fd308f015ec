"""Keeps the base model's weights, so that adapters can be merged into them, one at a time."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.models.adapter import Adapter, merge
from slimrl.models.lora import base_fingerprint

NO_ADAPTER = Adapter(1.0, {})


class BaseWeights:
    """The merged adapter, and copies in the CPU's memory of the base model's matrices that it has changed."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._present = NO_ADAPTER
        self._fingerprint = ""
        self._are_lost = False

    def lose(self) -> None:
        """Record that all weights of the served model were replaced, so no adapter can be merged into the base
        model."""
        self._kept, self._present, self._are_lost = {}, NO_ADAPTER, True

    def check(self, adapter: Adapter, module: nn.Module) -> None:
        """Raise UserError unless the initial weights are still served and the adapter was trained on them."""
        if self._are_lost:
            raise UserError(
                "It is an adapter alone, and the weights that the server was started with have been replaced since, so "
                "there is nothing to merge it into: start the server again, or give it whole weights."
            )
        if not self._fingerprint:  # the model still has its first weights
            self._fingerprint = base_fingerprint(module)
        if adapter.base not in ("", self._fingerprint):
            raise UserError(
                "It is an adapter alone, of other weights than those that the server was started with, or of another "
                "dtype: start the server with the model.name and model.dtype of its trainer."
            )

    @torch.no_grad()
    def put(self, adapter: Adapter, engine: Engine, module: nn.Module, version: int) -> None:
        """Merge an adapter into the base model, remove an earlier adapter, and publish the result as `version`. Raises
        UserError if the new numbers are not finite. After an error, nothing has changed."""
        parameters, before = dict(module.named_parameters()), engine.version
        for name in adapter.pairs.keys() - self._kept.keys():
            self._kept[name] = _copy_to_cpu(parameters[name])
        try:
            self._write(adapter, parameters)
            engine.publish(version)
            self._present = adapter
        except BaseException:
            self._write(self._present, parameters)
            engine.publish(before)  # clears the cache, which the failed weights may have filled
            raise
        finally:
            # All other matrices of the module equal the base model's, so no copies of them are needed.
            self._kept = {name: self._kept[name] for name in self._present.pairs}

    def _write(self, adapter: Adapter, parameters: Mapping[str, Tensor]) -> None:
        """Write the merged matrices one by one, because a GPU may lack the memory for all. They are merged as in the
        trainer."""
        for name, kept in self._kept.items():
            base = {name: kept.to(parameters[name].device, non_blocking=True)}
            pairs = {name: adapter.pairs[name]} if name in adapter.pairs else {}
            parameters[name].copy_((base | merge(Adapter(adapter.scale, pairs), base))[name])


def _copy_to_cpu(tensor: Tensor) -> Tensor:
    # Pinned memory is copied to a GPU several times as fast.
    return torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(tensor)
