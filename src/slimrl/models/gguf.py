"""Converts a `.gguf` file to a directory in Hugging Face format, once, in the cache. Knows nothing of chat or training.

`gguf_header.py`, `gguf_metadata.py` and `gguf_tokenizer.py` read the file; the package gguf names and dequantizes the
tensors. The reader of `.gguf` files in transformers is not used, because it differs between versions.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root, say
from slimrl.io.checksums import file_sha256
from slimrl.models.gguf_header import GgufHeader, GgufTensor, block_size, read_header, type_name
from slimrl.models.gguf_metadata import PAIRED, ROPE_TENSORS, build_config
from slimrl.models.gguf_tokenizer import build_tokenizer, stop_ids
from slimrl.models.quiet import no_progress_bars

VERSION = 4  # of the conversion: cache entries of other versions are not used

GGML_F32, GGML_F16 = 0, 1  # tensor types that are not quantized
# Tensors beside a matrix in NVFP4: a factor of its values, and one with which llama.cpp may quantize a layer's inputs.
SCALE, INPUT_SCALE = "scale", "input_scale"
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
ROWS = 1024  # number of rows of them that are compared, the first of the vocabulary
# Errors of rounding relative to the values: quantization to b bits per weight errs by 1.3 to 3.5 times 2^-b (measured
# for 25 types of llama.cpp), and a 16-bit float by 2^-9 at most. Unrelated matrices differ by 1 or more.
ERROR, FLOAT_ERROR, UNRELATED = 4.0, 2.0**-8, 0.5


def convert(path: Path) -> Path:
    """Return the cached directory with the model of a `.gguf` file in Hugging Face format. Convert the file first if
    the cache lacks this directory.

    Raises UserError if the file is incomplete, not GGUF, or of an unsupported kind.
    """
    directory = cache_root() / "models" / f"{path.stem}-{file_sha256(path)[:16]}-{VERSION}"
    return build_once(directory, lambda temporary: _convert_into(path, temporary))


def gguf_config(path: Path) -> Any:
    """Read the config of the model in a `.gguf` file, from its header alone. Raises UserError like `convert`."""
    header = read_header(path)
    with _explain_failure(path):
        return build_config(tie(header))


def _convert_into(path: Path, directory: Path) -> None:
    header = read_header(path)
    size_mb = path.stat().st_size / 1e6
    say(f"Converting {path.name} ({size_mb:.0f} MB) to safetensors; this happens once ...")
    start = time.perf_counter()
    with _explain_failure(path):
        tokenizer = build_tokenizer(header.metadata)
        module = _module(tie(header, say))
    with no_progress_bars():
        module.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    written_mb = sum(file.stat().st_size for file in directory.iterdir()) / 1e6
    say(f"Converted in {time.perf_counter() - start:.0f} s: {written_mb:.0f} MB in {directory.parent}.")


@contextlib.contextmanager
def _explain_failure(path: Path) -> Iterator[None]:
    """Context manager: convert any exception to a UserError. transformers raises many kinds of exceptions here, always
    because of the file."""
    try:
        yield
    except Exception as error:
        in_words = isinstance(error, (ValueError, NotImplementedError))
        raise UserError(
            f"{path} is a whole GGUF file, but of a kind that cannot be converted: "
            f"{error if in_words else f'{type(error).__name__}: {error}'}. Use the model's directory in Hugging Face "
            "format (config.json, safetensors, tokenizer) instead."
        ) from error


def _module(header: GgufHeader) -> Any:
    """Return the model with the file's tensors, dequantized to the dtype in which the model will be saved.

    Quantized files become bfloat16. Quantization to 4 or 8 bits loses far more than bfloat16's rounding, and the models
    were published in bfloat16. This dtype halves disk space and loading time, and the policy at step 0 is the same on
    machines that compute in bfloat16 and in float32. Files with unquantized matrices become float32, so that no
    precision is lost.
    """
    config = build_config(header)
    # On the meta device, no memory is allocated or initialised before the tensors are assigned.
    with torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    # Only the matrices decide the dtype: norms and biases are float32 even in quantized files.
    matrices = [tensor for tensor in header.tensors.values() if len(tensor.shape) > 1]
    exact = any(tensor.type in (GGML_F32, GGML_F16) for tensor in matrices)
    dtype = torch.float32 if exact else torch.bfloat16
    sources = _sources(header, config, list(module.state_dict()))
    tensors = {name: _read(header, name, source, dtype) for name, source in sources.items()}
    module.load_state_dict(tensors, strict=False, assign=True)  # raises for a tensor of another shape
    # A file with tied embeddings has no LM head. Any other tensor that is still on the meta device is missing in the
    # file.
    module.tie_weights()
    if missing := [name for name, parameter in module.named_parameters() if parameter.is_meta]:
        raise ValueError(f"{len(missing)} of the architecture's tensors are not in it, such as {missing[0]}")
    ids = stop_ids(header.metadata)
    module.generation_config.eos_token_id = ids[0] if len(ids) == 1 else ids or None
    return module


def _sources(header: GgufHeader, config: Any, names: Sequence[str]) -> dict[str, GgufTensor]:
    """Map the names of the model's tensors to the tensors in the file. Names without a tensor in the file are left out.

    Raises ValueError if a tensor in the file does not belong to the model.
    """
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    [architecture] = [number for number, name in MODEL_ARCH_NAMES.items() if name == header.architecture]
    table = get_tensor_name_map(architecture, config.num_hidden_layers)
    left = {name: tensor for name, tensor in header.tensors.items() if name not in ROPE_TENSORS}
    sources = {}
    for name in names:
        stem, _, ending = name.rpartition(".")
        source = f"{table.get_name(stem)}.{ending}"
        if source in left:
            sources[name] = left.pop(source)
            for factor in (SCALE, INPUT_SCALE):
                left.pop(f"{table.get_name(stem)}.{factor}", None)
    if left:
        raise ValueError(f"{len(left)} of its tensors have no place in the architecture, such as {min(left)}")
    return sources


def _read(header: GgufHeader, name: str, tensor: GgufTensor, dtype: torch.dtype) -> Tensor:
    """Read the values of the model's tensor `name` from the file's `tensor`, in the layout of transformers."""
    # llama.cpp multiplies by a weight, transformers by one plus a weight.
    if header.architecture == "gemma3" and name.endswith("norm.weight"):
        return (header.read(tensor) - 1).to(dtype)
    scale = header.tensors.get(tensor.name.removesuffix("weight") + SCALE)
    values = header.read(tensor, dtype) if scale is None else (header.read(tensor) * header.read(scale)).to(dtype)
    kind = name.split(".")[-2]
    if header.architecture not in PAIRED or kind not in ("q_proj", "k_proj"):
        return values
    num_heads = header.metadata[f"{header.architecture}.attention.head_count"]
    if kind == "k_proj":
        num_heads = header.metadata.get(f"{header.architecture}.attention.head_count_kv", num_heads)
    # Rotary positions pair each row with the row half a head away in Hugging Face, and with its neighbour in llama.cpp.
    pairs: Tensor = values.unflatten(0, (num_heads, -1, 2))
    return pairs.transpose(1, 2).reshape(values.shape)


def tie(header: GgufHeader, note: Callable[[str], None] = lambda text: None) -> GgufHeader:
    """Return the header without the LM head if the head equals the embedding up to rounding: then the copy with more
    bits per weight stands as the embedding, and `note` receives a line about it. Otherwise return the header unchanged.

    Many small models have one matrix for both. No key of a file says so, and llama.cpp's tools may quantize the copies
    to different types. Untied, such a model has more parameters to train, and the two copies drift apart.
    """
    tensors = dict(header.tensors)
    copies = [tensors.get(EMBEDDING), tensors.pop(HEAD, None)]
    found = [copy for copy in copies if copy is not None]
    if len(found) < 2 or found[0].shape != found[1].shape:
        return header
    coarse, fine = sorted(found, key=_bits)
    exact = _first_rows(header, fine)
    difference = float((_first_rows(header, coarse) - exact).norm() / exact.norm())
    if not difference <= min(max(ERROR * 2 ** -_bits(coarse), FLOAT_ERROR), UNRELATED):  # nan for zeros
        return header
    stored = " and ".join(f"{copy.name} ({type_name(copy.type)})" for copy in found)
    note(f"{stored} are one matrix: they differ by rounding alone ({difference:.1%}). Tied; {fine.name} is kept.")
    return replace(header, tensors=tensors | {EMBEDDING: replace(fine, name=EMBEDDING)})


def _bits(tensor: GgufTensor) -> float:
    """Return the number of bits per weight."""
    per_block, block_bytes = block_size(tensor.type)
    return 8 * block_bytes / per_block


def _first_rows(header: GgufHeader, matrix: GgufTensor) -> Tensor:
    num, width = matrix.shape
    count = min(ROWS, num)
    return header.read(replace(matrix, shape=(count, width), num_bytes=matrix.num_bytes // num * count))
