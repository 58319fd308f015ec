"""Replaces the weights of a running model: checks new ones, then copies them into its parameters.

Raises UserError, before anything is changed, if a directory does not hold exactly this model's weights. Knows nothing
of HTTP or engines.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.io.checksums import check_sums
from slimrl.models.device import dtype_name
from slimrl.models.resolve import weight_files
from slimrl.models.tensor_file import Kind, TensorFile


def read_weights(directory: Path, module: nn.Module) -> dict[str, Tensor]:
    """The directory's tensors, read into memory, by the names of the parameters that they replace.

    Names, shapes and dtypes must be those of the module, and all numbers finite. A parameter that is tied to another
    may be missing, or must be equal to it. Buffers must be equal to the module's own. Nothing but the headers is read
    of weights that are not the module's.
    """
    # Tied parameters have several names: `known` has all, `unique` the first, which holds the tensor.
    known = dict(module.named_parameters(remove_duplicate=False))
    unique = dict(module.named_parameters())
    own = known | dict(module.named_buffers())
    files = _files(directory, most=len(own))
    said = [name for file in files for name in file.kinds]
    if unknown := sorted(set(said) - set(own)):
        raise UserError(f"{directory} has the tensor {unknown[0]}, which the served model has not.")
    if missing := sorted(set(unique) - set(said)):
        raise UserError(f"{directory} lacks {len(missing)} of the served model's tensors, such as {missing[0]}.")
    if twice := [name for name, times in Counter(said).items() if times > 1]:
        raise UserError(f"{directory} has the tensor {twice[0]} in several files.")
    for file in files:
        for name, kind in file.kinds.items():
            _check_same_kind(directory, name, kind, own[name])
    found = {name: tensor for file in files for name, tensor in file.read()}
    # After they were read: what is written over a file in between does not agree with its checksum any more.
    check_sums(directory, [file.path.relative_to(directory).as_posix() for file in files])
    first_names = {id(parameter): name for name, parameter in unique.items()}
    for name, tensor in found.items():
        # Keys and values with NaNs would outlive the weights: even masked, they spoil every sequence that reads them.
        if not torch.isfinite(tensor).all():
            raise UserError(f"{name} in {directory} has numbers that are NaN or infinite.")
        # What is not copied must be equal already: buffers, and the further names of tied parameters.
        if name not in known:
            _check_same_numbers(directory, name, tensor, own[name])
        elif name not in unique:
            _check_same_numbers(directory, name, tensor, found[first_names[id(known[name])]])
    return {name: tensor for name, tensor in found.items() if name in unique}


@torch.no_grad()
def copy_weights(weights: Mapping[str, Tensor], module: nn.Module) -> None:
    """Copy checked tensors into the module's parameters, in place."""
    parameters = dict(module.named_parameters())
    for name, tensor in weights.items():
        parameters[name].copy_(tensor)


def _files(directory: Path, most: int) -> list[TensorFile]:
    if not directory.is_dir():
        raise UserError(f"{directory} is no directory on the server's machine.")
    paths = weight_files(directory)
    if not paths or any(path.suffix != ".safetensors" for path in paths):
        raise UserError(f"{directory} holds no model.safetensors, nor several with model.safetensors.index.json.")
    if len(paths) > most:
        raise UserError(f"{directory} has {len(paths)} files of weights, but the served model has {most} tensors.")
    return [TensorFile(path) for path in paths]


def _check_same_kind(directory: Path, name: str, kind: Kind, own: Tensor) -> None:
    if kind.shape != tuple(own.shape):
        raise UserError(
            f"{name} in {directory} has the shape {list(kind.shape)}, but the served model's has {list(own.shape)}."
        )
    if kind.dtype != own.dtype:
        theirs, ours = dtype_name(kind.dtype), dtype_name(own.dtype)
        raise UserError(
            f"{name} in {directory} is {theirs}, but the served model is {ours}. Save the weights as {ours}, or start "
            f"the server with --model.dtype {theirs}."
        )


def _check_same_numbers(directory: Path, name: str, tensor: Tensor, other: Tensor) -> None:
    if not torch.equal(tensor.to(other.device), other):
        raise UserError(
            f"{name} in {directory} differs from what it is in the served model: a buffer that never changes, or the "
            "same weights as those of another name. Leave it out, or save the model whose weights it belongs to."
        )
