"""Reads safetensors files that may be anything, and may change meanwhile, into memory of their own.

The library `safetensors` maps a file: a program that truncates it then kills this process with SIGBUS, one that writes
into it changes numbers that were checked already, and a pipe stops every thread. Here the header is checked first, by
the caller as well; then each tensor is read once. Raises UserError for a file that cannot be used.
"""

import io
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular, parse_json

MAX_HEADER_BYTES = 16 * 2**20  # a tensor takes about 150
READ_BYTES = 2**26
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
# Of weights in these transformers makes others while it loads them.
ALL_DTYPES = DTYPES | {
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "C64": torch.complex64,
}
METADATA = "__metadata__"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a header says of a tensor; its bytes are at `start..end` of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class TensorFile:
    """A safetensors file whose header has been read. `metadata` is the free text in it, and `dtypes` has the formats
    that are allowed, by their names in such a file."""

    def __init__(self, path: Path, dtypes: Mapping[str, torch.dtype] = DTYPES) -> None:
        self.path = path
        self._dtypes = dtypes
        with open_regular(path) as file:
            self._identity = _identity(file)
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                raise self._damage_error(f"its header of {length} bytes is none, or is cut off")
            content = bytearray(length)
            _fill(file, memoryview(content))
        header = parse_json(bytes(content), f"The header of {path}")
        if not isinstance(header, dict):
            raise self._damage_error("its header is no JSON object")
        metadata = header.pop(METADATA, {})
        self.metadata: Mapping[str, str] = metadata if isinstance(metadata, dict) else {}
        self.kinds = {name: self._kind(name, said, 8 + length) for name, said in header.items()}
        ranges = sorted((kind.start, kind.end) for kind in self.kinds.values())
        edges = [(8 + length, 8 + length), *ranges, (size, size)]
        if any(before[1] != after[0] for before, after in pairwise(edges)):
            raise self._damage_error("its tensors do not fill it, one after the other: it may be cut off")

    def read(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors with their names. Raises UserError if the file is another than when its header was read,
        at the end too: what came before must not be used then."""
        with open_regular(self.path) as file:
            for name, kind in self.kinds.items():
                tensor = torch.empty(kind.shape, dtype=kind.dtype)
                file.seek(kind.start)
                if tensor.numel() and not _fill(file, tensor.reshape(-1).view(torch.uint8).numpy().data):
                    raise self._change_error()
                yield name, tensor
            if _identity(file) != self._identity:
                raise self._change_error()

    def _kind(self, name: str, said: Any, first: int) -> Kind:
        match said:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
                if dtype not in self._dtypes:
                    raise UserError(
                        f"{self.path} has the tensor {name} in the format {dtype}, which cannot be read here: save it "
                        "as float32, float16 or bfloat16."
                    )
                whole = all(type(length) is int and length >= 0 for length in shape) and len(shape) <= 8
                if whole and 0 <= start and end - start == math.prod(shape) * self._dtypes[dtype].itemsize:
                    return Kind(self._dtypes[dtype], tuple(shape), first + start, first + end)
        raise self._damage_error(f"its header does not describe the tensor {name}")

    def _damage_error(self, why: str) -> UserError:
        return UserError(f"{self.path} is no whole safetensors file: {why}. Copy or download it again.")

    def _change_error(self) -> UserError:
        return UserError(
            f"{self.path} changed while it was read. Write new weights to a new directory, or give them their name "
            "when they are complete, and ask again."
        )


def _identity(file: io.FileIO) -> tuple[int, ...]:
    """What changes when somebody writes to a file or puts another in its place."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _fill(file: io.FileIO, buffer: memoryview) -> bool:
    """Read until the buffer is full; return False if the file ends before."""
    at = 0
    while at < len(buffer):
        num_read = file.readinto(buffer[at : at + READ_BYTES])
        if not num_read:
            return False
        at += num_read
    return True
