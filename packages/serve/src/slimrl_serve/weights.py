"""Replaces the weights of a running model: checks new weights, then copies them into the parameters. Keeps the base
model's weights, so that one adapter after another can be merged into the base model.

If a directory does not have exactly this model's weights, a UserError is raised before anything changes.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.io.checksums import check_sums
from slimrl.models.adapter import Adapter, merge
from slimrl.models.device import dtype_name
from slimrl.models.lora import base_fingerprint
from slimrl.models.tensor_file import TensorFile
from slimrl.models.weight_files import weight_files

Kinds = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # the shape and dtype of each tensor, by name
NO_ADAPTER = Adapter(1.0, {})


def read_weights(directory: Path, module: nn.Module) -> dict[str, Tensor]:
    """Read the directory's tensors into memory, and return them keyed by the names of the parameters that they replace.

    Names, shapes and dtypes must equal the module's, and all numbers must be finite. A parameter that is tied to
    another one may be missing, but must not differ from it. Buffers must equal the module's own. If names, shapes or
    dtypes do not fit the module, only the headers of the files are read.
    """
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory on the server's machine.")
    paths = weight_files(directory)
    if not paths or any(path.suffix != ".safetensors" for path in paths):
        raise UserError(f"{directory} holds no model.safetensors, nor several with model.safetensors.index.json.")
    files = [TensorFile(path) for path in paths]
    check_kinds(directory, {name: kind for file in files for name, kind in file.kinds.items()}, module)
    found = {name: tensor for file in files for name, tensor in file.read()}
    # Checked after reading: a file that was overwritten in between no longer matches its checksum.
    check_sums(directory, [file.path.relative_to(directory).as_posix() for file in files])
    return check_numbers(directory, found, module)


def check_kinds(source: Path, kinds: Kinds, module: nn.Module) -> None:
    """Raise UserError unless `kinds` has the names, shapes and dtypes of the module's tensors."""
    own = _tensors_of(module)
    if unknown := sorted(set(kinds) - set(own)):
        raise UserError(f"{source} has the tensor {unknown[0]}, which the served model has not.")
    for name, (shape, dtype) in kinds.items():
        if shape != tuple(own[name].shape):
            raise UserError(
                f"{name} in {source} has the shape {list(shape)}, but the served model's has {list(own[name].shape)}."
            )
        if dtype != own[name].dtype:
            theirs, ours = dtype_name(dtype), dtype_name(own[name].dtype)
            raise UserError(
                f"{name} in {source} is {theirs}, but the served model is {ours}. Save the weights as {ours}, or start "
                f"the server with --model.dtype {theirs}."
            )
    if missing := sorted(set(dict(module.named_parameters())) - set(kinds)):
        raise UserError(f"{source} lacks {len(missing)} of the served model's tensors, such as {missing[0]}.")


def check_numbers(source: Path, found: Mapping[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors to copy into the module. `found` has the right names, shapes and dtypes. Raises UserError for
    numbers that are not finite, and for a tensor that differs from the tensor to which it is tied."""
    # Tied parameters have several names: `unique` has the first, which holds the tensor.
    unique, own = dict(module.named_parameters()), _tensors_of(module)
    first_names = {id(parameter): name for name, parameter in unique.items()}
    for name, tensor in found.items():
        # Keys and values with NaNs would outlive the weights: even masked, they spoil every sequence that reads them.
        if not torch.isfinite(tensor).all():
            raise UserError(f"{name} in {source} has numbers that are NaN or infinite.")
        # Tensors that are not copied must be equal already: buffers, and the further names of tied parameters.
        other = found[first_names[id(own[name])]] if id(own[name]) in first_names else own[name]
        if name not in unique and not torch.equal(tensor.to(other.device), other):
            raise UserError(
                f"{name} in {source} differs from what it is in the served model: a buffer that never changes, or the "
                "same weights as those of another name. Leave it out, or save the model whose weights it belongs to."
            )
    return {name: tensor for name, tensor in found.items() if name in unique}


@torch.no_grad()
def copy_weights(weights: Mapping[str, Tensor], module: nn.Module) -> None:
    """Copy checked tensors into the module's parameters, in place."""
    parameters = dict(module.named_parameters())
    for name, tensor in weights.items():
        parameters[name].copy_(tensor)


def _tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())


class BaseWeights:
    """Holds the merged adapter, and copies of the base model's matrices that the adapter has changed. The copies are in
    the CPU's memory."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._present = NO_ADAPTER
        self._fingerprint = ""
        self._are_lost = False

    def lose(self) -> None:
        """Record that all weights of the served model were replaced, so no adapter can be merged into the base
        model."""
        self._kept, self._present, self._are_lost = {}, NO_ADAPTER, True

    def mergeable(self, adapter: Adapter, module: nn.Module) -> Adapter:
        """Return the adapter. Raises UserError unless the initial weights are still served and the adapter was trained
        on them."""
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
        return adapter

    @torch.no_grad()
    def put(self, adapter: Adapter, engine: Engine, module: nn.Module, version: int) -> None:
        """Merge an adapter into the base model, remove an earlier adapter, and publish the result as `version`. Raises
        UserError if the new numbers are not finite. After an error, nothing has changed."""
        parameters, before = dict(module.named_parameters()), engine.version
        for name in adapter.pairs.keys() - self._kept.keys():
            # Pinned memory is copied to a GPU several times as fast.
            copy = torch.empty_like(parameters[name], device="cpu", pin_memory=parameters[name].is_cuda)
            self._kept[name] = copy.copy_(parameters[name])
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
        """Merge the adapter into the matrices one by one, because a GPU may lack the memory for all of them at once.
        The trainer merges with the same function."""
        for name, kept in self._kept.items():
            base = {name: kept.to(parameters[name].device, non_blocking=True)}
            pairs = {name: adapter.pairs[name]} if name in adapter.pairs else {}
            parameters[name].copy_((base | merge(Adapter(adapter.scale, pairs), base))[name])
