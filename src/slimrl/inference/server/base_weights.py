"""The weights that a server was started with, into which the adapters of a training run are merged."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.models.adapter import Adapter, merge


class BaseWeights:
    """Those matrices of the base model that adapters have changed in the served one. They are kept in the memory of the
    CPU."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._are_lost = False

    @property
    def kept(self) -> Mapping[str, Tensor]:
        """The matrices by name."""
        return self._kept

    def lose(self) -> None:
        """Note that the served model has been given whole weights, so it is no base of adapters any more."""
        self._kept, self._are_lost = {}, True

    @torch.no_grad()
    def with_adapter(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """The weights of the base model with an adapter merged in, of all matrices that this or an earlier adapter
        changes. Raises UserError if the base model is not there any more."""
        if self._are_lost:
            raise UserError(
                "It is an adapter alone, and the weights that the server was started with have been replaced since, so "
                "there is nothing to merge it into: start the server again, or give it whole weights."
            )
        parameters = dict(module.named_parameters())
        for name in adapter.pairs.keys() - self._kept.keys():
            self._kept[name] = parameters[name].detach().to("cpu", copy=True)
        merged = dict(self._kept)
        for name, pair in adapter.pairs.items():
            # One at a time, and where the trainer has merged its own: a GPU may have no room for all.
            base = {name: self._kept[name].to(parameters[name].device)}
            merged[name] = merge(Adapter(adapter.scale, {name: pair}), base)[name].cpu()
        return merged
