"""Reads safetensors files into the process's own memory.

The library `safetensors` checks the header, but would map the values into memory. Then a file that is truncated, or
deleted on a network file system, would kill this process with SIGBUS. Here each tensor is read once, after the caller
has checked the header. Raises UserError for an unusable file.
"""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}


class TensorKind(NamedTuple):
    """The shape and dtype of a tensor, read from the header."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class TensorFile:
    """A safetensors file with a parsed header. `kinds` maps the names of the tensors to their shapes and dtypes, in the
    order of the tensors in the file. `metadata` holds the additional texts of the header by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as file:
            self._start = 8 + int.from_bytes(file.read(8), "little")
        try:
            with safe_open(path, framework="numpy") as header:
                self.metadata: Mapping[str, str] = header.metadata() or {}
                parts = {name: header.get_slice(name) for name in header.offset_keys()}
                said = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()}
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} is no whole safetensors file: {error}. Copy or download it again.") from error
        for name, (_, dtype) in said.items():
            if dtype not in DTYPES:
                raise UserError(f"{path} has the tensor {name} in the format {dtype}, which cannot be read here.")
        self.kinds = {name: TensorKind(shape, DTYPES[dtype]) for name, (shape, dtype) in said.items()}

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the value of each tensor. Raises UserError if the file was truncated since its header was
        read."""
        with open_regular(self.path) as file:
            file.seek(self._start)
            reader = io.BufferedReader(file)
            for name, kind in self.kinds.items():
                tensor = torch.empty(kind.shape, dtype=kind.dtype)
                buffer = tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else bytearray()
                if reader.readinto(buffer) < len(buffer):
                    raise UserError(f"{self.path} was truncated while it was read. Copy or download it again.")
                yield name, tensor
