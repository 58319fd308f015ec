"""Finds out whether a GGUF file stores one matrix twice: as the embedding, and as the LM head.

Many small models have one matrix for both. No key of a file says so, and llama.cpp's tools may quantize the copies to
different types. Untied, such a model has more parameters to train, and the two copies drift apart.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from slimrl.models.gguf_header import GgufHeader, GgufTensor
from slimrl.models.gguf_types import block_size, type_name

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
ROWS = 1024  # number of rows that are compared, the first of the vocabulary
# Errors of rounding relative to the values: quantization to b bits per weight errs by 1.3 to 3.5 times 2^-b (measured
# for 25 types of llama.cpp), and a 16-bit float by 2^-9 at most. Unrelated matrices differ by 1 or more.
ERROR, FLOAT_ERROR, UNRELATED = 4.0, 2.0**-8, 0.5


def tie(header: GgufHeader, note: Callable[[str], None] = lambda text: None) -> GgufHeader:
    """Return the header without the LM head if the head equals the embedding up to rounding: then the copy with more
    bits per weight stands as the embedding, and `note` receives a line about it. Otherwise return the header
    unchanged."""
    tensors = dict(header.tensors)
    copies = [tensors.get(EMBEDDING), tensors.pop(HEAD, None)]
    found = [copy for copy in copies if copy is not None]
    if len(found) < 2 or found[0].shape != found[1].shape:
        return header
    coarse, fine = sorted(found, key=_bits)
    difference = _difference(header, coarse, fine)
    if not difference <= min(max(ERROR * 2 ** -_bits(coarse), FLOAT_ERROR), UNRELATED):  # nan for zeros
        return header
    stored = " and ".join(f"{copy.name} ({type_name(copy.type)})" for copy in found)
    note(f"{stored} are one matrix: they differ by rounding alone ({difference:.1%}). Tied; {fine.name} is kept.")
    return replace(header, tensors=tensors | {EMBEDDING: replace(fine, name=EMBEDDING)})


def _bits(tensor: GgufTensor) -> float:
    """Return the number of bits per weight."""
    per_block, block_bytes = block_size(tensor.type)
    return 8 * block_bytes / per_block


def _difference(header: GgufHeader, one: GgufTensor, other: GgufTensor) -> float:
    """Return the norm of the difference of two matrices, relative to the norm of `other`."""
    ours, theirs = _sample(header, one), _sample(header, other)
    return float((ours - theirs).norm() / theirs.norm())


def _sample(header: GgufHeader, matrix: GgufTensor) -> Tensor:
    """Read the first rows of a matrix."""
    num, width = matrix.shape
    count = min(ROWS, num)
    return header.read(replace(matrix, shape=(count, width), num_bytes=matrix.num_bytes // num * count))
