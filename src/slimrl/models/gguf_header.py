"""Reads the header of a GGUF file: its metadata, and the shape and position of each tensor.

The reader follows the format's specification (ggml, docs/gguf.md). `gguf.GGUFReader` takes thirty times as long,
because it creates an array for each word of a vocabulary.

The package gguf knows the types of tensors: the size of their blocks, and how to dequantize them. It is slow to import,
and only GGUF files need it, so each function imports it.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slimrl.errors import UserError

VERSIONS = (2, 3)
ALIGNMENT = 32  # bytes, unless the file has another value
CHUNK = 1 << 16  # values that are dequantized at once: whole blocks of every type, in the processor's cache
STRING, ARRAY = 8, 9
# The codes of the other value types -> their letters in the `struct` module.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Types of llama.cpp that gguf 0.19 cannot dequantize: code -> values per block, bits per value, step. A block is a
# float16 scale d, then the integers q, the lowest bits first. A value is d (step q - 1).
INTEGERS = {41: (128, 1, 2), 42: (64, 2, 1)}  # Q1_0, Q2_0


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of the file. The last dimension of `shape` is contiguous. `start` is the offset from the file's first
    byte."""

    name: str
    shape: tuple[int, ...]
    type: int  # a value of `gguf.GGMLQuantizationType`
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The header of a GGUF file: the metadata by key (arrays are lists), and the tensors by name in the file's
    order."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    def read(self, tensor: GgufTensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Read the values of a tensor, dequantized to `dtype`. Raises ValueError, with the tensor's name, for a type
        that cannot be dequantized."""
        stored = np.fromfile(self.path, np.uint8, tensor.num_bytes, offset=tensor.start)
        per_block, block_bytes = block_size(tensor.type)
        values = torch.empty(tensor.shape, dtype=dtype)
        chunks = zip(
            torch.from_numpy(stored).split(CHUNK // per_block * block_bytes), values.view(-1).split(CHUNK), strict=True
        )
        try:
            for chunk, target in chunks:
                target.copy_(torch.from_numpy(dequantize(chunk.numpy(), tensor.type)))
        except NotImplementedError as error:
            raise ValueError(_refusal(tensor.name, tensor.type)) from error
        return values


def read_header(path: Path) -> GgufHeader:
    """Parse the header. Raises UserError if the file has another format, or is truncated or damaged."""
    with path.open("rb") as file:
        magic = file.read(4)
        if magic != b"GGUF":
            raise UserError(
                f"{path} is not a GGUF file: it begins with {magic!r} instead of b'GGUF'. A file of a few hundred "
                "bytes may be a Git LFS pointer or an error page; download it again."
            )
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _parse(path, _Cursor(content))
        except (struct.error, ValueError, LookupError, TypeError, ArithmeticError) as error:
            raise UserError(
                f"{path} is cut off or damaged, or of another version: its header cannot be read ({error}). Download "
                "it again."
            ) from error


class _Cursor:
    """A read position in the file. A read beyond the end of the file raises `struct.error` before it allocates
    memory."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        self.position = 4  # after the four bytes of `GGUF`

    def read(self, layout: str) -> tuple[Any, ...]:
        """Return the next values, in a layout of the `struct` module."""
        values = struct.unpack_from(f"<{layout}", self.content, self.position)
        self.position += struct.calcsize(f"<{layout}")
        return values

    def text(self) -> str:
        (length,) = self.read("Q")
        (text,) = self.read(f"{length}s")
        return str(text, "utf-8")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.read(SCALARS[kind])[0]
        kind, length = self.read("IQ")
        return [self.text() for _ in range(length)] if kind == STRING else [*self.read(f"{length}{SCALARS[kind]}")]


def _refusal(name: str, kind: int) -> str:
    return (
        f"its tensor {name} has the type {type_name(kind)}, which cannot be read here; take a file in another "
        "quantization, such as Q8_0 or Q4_K_M"
    )


def _parse(path: Path, cursor: _Cursor) -> GgufHeader:
    version, num_tensors, num_keys = cursor.read("IQQ")
    if version not in VERSIONS:
        raise ValueError(f"GGUF version {version}; {VERSIONS} can be read")
    metadata = {cursor.text(): cursor.value(*cursor.read("I")) for _ in range(num_keys)}
    entries = {}
    for _ in range(num_tensors):
        name, (num_dimensions,) = cursor.text(), cursor.read("I")
        *lengths, kind, offset = cursor.read(f"{num_dimensions}QIQ")
        entries[name] = tuple(lengths[::-1]), kind, offset
    if len(entries) < num_tensors:
        raise LookupError("two tensors have one name")
    alignment = metadata.get("general.alignment", ALIGNMENT)
    first = -(-cursor.position // alignment) * alignment
    tensors, end = {}, first
    for name, (shape, kind, offset) in entries.items():
        try:
            per_block, block_bytes = block_size(kind)
        except ValueError as error:
            raise UserError(f"{path} cannot be loaded: {_refusal(name, kind)}.") from error
        tensors[name] = GgufTensor(name, shape, kind, first + offset, prod(shape) // per_block * block_bytes)
        # The format has no gaps, so a type that other programs store differently is noticed here.
        if tensors[name].start != end:
            raise ValueError(f"the tensor {name} starts at byte {first + offset:,}, not at {end:,}")
        end += -(-tensors[name].num_bytes // alignment) * alignment
    if max(tensor.start + tensor.num_bytes for tensor in tensors.values()) > len(cursor.content):
        raise ValueError(f"the file ends before its tensors, at byte {len(cursor.content):,}")
    return GgufHeader(path, metadata, tensors)


def block_size(kind: int) -> tuple[int, int]:
    """Return the number of values and the number of bytes in a block of the type. Raises ValueError for an unknown
    type."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if kind in INTEGERS:
        values, bits, _ = INTEGERS[kind]
        return values, 2 + values * bits // 8
    values, num_bytes = map(int, GGML_QUANT_SIZES[GGMLQuantizationType(kind)])
    return values, num_bytes


def type_name(kind: int) -> str:
    """Return the name of the type, as in `Q4_K`; its number if it has no name here."""
    from gguf import GGMLQuantizationType

    names: dict[int, str] = {int(known): known.name for known in GGMLQuantizationType}
    return names.get(kind, f"number {kind}")


def dequantize(stored: np.ndarray, kind: int) -> np.ndarray:
    """Return the float32 values (N,) of whole blocks, given as bytes (M,). Raises NotImplementedError for a type that
    holds no weights, such as one for activations."""
    import gguf

    if kind in INTEGERS:
        return _read_integers(stored, *INTEGERS[kind])
    # As one row: gguf calls several operations of numpy for every 16 rows.
    values: np.ndarray = gguf.dequantize(stored[None], gguf.GGMLQuantizationType(kind))[0]
    return values


def _read_integers(stored: np.ndarray, per_block: int, num_bits: int, step: int) -> np.ndarray:
    blocks = stored.reshape(-1, 2 + per_block * num_bits // 8)
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").reshape(len(blocks), per_block, num_bits)
    integers = bits @ (1 << np.arange(num_bits))
    values: np.ndarray = (scales * (step * integers - 1)).ravel().astype(np.float32)
    return values
