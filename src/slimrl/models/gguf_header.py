"""Reads the header of a GGUF file: its metadata, and the shape and position of each tensor. Reads no weights.

The reader follows the format's specification (ggml, docs/gguf.md). `gguf.GGUFReader` takes thirty times as long,
because it creates an array for each word of a vocabulary.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from slimrl.errors import UserError

VERSIONS = (2, 3)
ALIGNMENT = 32  # bytes, unless the file has another value
STRING, ARRAY = 8, 9
# The codes of the other value types -> their letters in the `struct` module.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of the file. The last dimension of `shape` is contiguous. `start` is the offset from the file's first
    byte."""

    shape: tuple[int, ...]
    type: int  # a value of `gguf.GGMLQuantizationType`
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """The metadata by key (arrays are lists), and the tensors by name in the file's order."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])


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
                return _Cursor(content).read_header()
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
        self.position = 4  # after the magic

    def read_header(self) -> GgufHeader:
        version, num_tensors, num_keys = self._unpack("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"GGUF version {version}; {VERSIONS} can be read")
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(*self._unpack("I"))
        entries = {self._string(): self._entry() for _ in range(num_tensors)}
        if len(entries) < num_tensors:
            raise LookupError("two tensors have one name")
        alignment = metadata.get("general.alignment", ALIGNMENT)
        first = -(-self.position // alignment) * alignment
        tensors = {
            name: GgufTensor(shape, kind, first + offset, _num_bytes(kind, shape))
            for name, (shape, kind, offset) in entries.items()
        }
        if max(tensor.start + tensor.num_bytes for tensor in tensors.values()) > len(self.content):
            raise ValueError(f"the file ends before its tensors, at byte {len(self.content):,}")
        return GgufHeader(metadata, tensors)

    def _unpack(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{layout}", self.content, self.position)
        self.position += struct.calcsize(f"<{layout}")
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        (text,) = self._unpack(f"{length}s")
        return str(text, "utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._unpack(SCALARS[kind])[0]
        kind, length = self._unpack("IQ")
        if kind == STRING:
            return [self._string() for _ in range(length)]
        return list(self._unpack(f"{length}{SCALARS[kind]}"))

    def _entry(self) -> tuple[tuple[int, ...], int, int]:
        """Read the shape, type and offset of a tensor."""
        (num_dimensions,) = self._unpack("I")
        lengths = self._unpack(f"{num_dimensions}Q")
        kind, offset = self._unpack("IQ")
        return lengths[::-1], kind, offset


def _num_bytes(kind: int, shape: tuple[int, ...]) -> int:
    # The package is slow to import, and only GGUF files need it: import it only here and where weights are read.
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    per_block, block_bytes = map(int, GGML_QUANT_SIZES[GGMLQuantizationType(kind)])
    return prod(shape) // per_block * block_bytes
