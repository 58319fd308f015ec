"""Knows the data types of tensors in GGUF files: the size of their blocks, and how to dequantize them.

The package gguf knows most types. It is slow to import, and only GGUF files need it, so each function imports it.
"""

import numpy as np

# Types of llama.cpp that gguf 0.19 cannot dequantize: code -> values per block, bits per value, step. A block is a
# float16 scale d, then the integers q, the lowest bits first. A value is d (step q - 1).
INTEGERS = {41: (128, 1, 2), 42: (64, 2, 1)}  # Q1_0, Q2_0


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
