"""Converts a `.gguf` file to a directory in Hugging Face format, once, in the cache. Knows nothing of chat or training.

transformers reads (dequantizes) the weights and the tokenizer. This module adds a check that the file is complete and
that no tensor of it is left over, and the cache; `gguf_metadata.py` and `gguf_tokenizer.py` add what transformers
passes over.
"""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.gguf.reader import GgufHeader, read_gguf_metadata
from transformers.modeling_gguf_pytorch_utils import (
    TENSOR_PROCESSORS,
    TensorProcessor,
    get_gguf_hf_weights_map,
    load_gguf_checkpoint,
)

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root, say
from slimrl.io.checksums import file_sha256
from slimrl.io.regular_file import open_regular
from slimrl.models.gguf_metadata import ROPE_TENSORS, check_metadata, check_sizes, complete_config
from slimrl.models.gguf_tokenizer import gguf_tokenizer, stop_ids
from slimrl.models.quiet import no_progress_bars

# The version of the conversion: cache entries that another version built are rebuilt.
RECIPE = "gguf-2"

GGML_F32, GGML_F16 = 0, 1  # tensor types that are not quantized


def convert(path: Path) -> Path:
    """The cached directory with this `.gguf` file in Hugging Face format; the file is converted if it is missing.

    Raises UserError if the file is not a complete GGUF file, or of a kind that transformers cannot read.
    """
    _check_whole(path)
    directory = cache_root() / "models" / f"{path.stem}-{file_sha256(path)[:16]}"
    return build_once(directory, lambda temporary: _convert_into(path, temporary), RECIPE)


def _check_whole(path: Path) -> None:
    """Raise UserError if the header cannot be read, or if a tensor that it lists lies outside the file or on another.
    Takes a few milliseconds."""
    with open_regular(path) as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise UserError(
            f"{path} is not a GGUF file: it begins with {magic!r} instead of b'GGUF'. A file of a few hundred bytes "
            "may be a Git LFS pointer or an error page; download it again."
        )
    size = path.stat().st_size
    try:
        header = GgufHeader.from_file(str(path))
    except Exception as error:  # of many kinds, depending on where it is cut off or overwritten
        # A ValueError is what transformers raises itself; its own subclasses come from Python.
        if type(error) is ValueError:
            raise UserError(f"{path} cannot be used: {error}") from error
        raise UserError(f"{path} is cut off or damaged: its header cannot be read. Download it again.") from error
    ranges = sorted((tensor.offset, tensor.offset + tensor.nbytes) for tensor in header.tensors)
    needed = header.data_start + max((end for _, end in ranges), default=0)
    if not header.tensors or size < needed:
        raise UserError(
            f"{path} is cut off: its header lists {len(header.tensors)} tensors that end at byte {needed:,}, but the "
            f"file has {size:,} bytes. Download it again."
        )
    names = {tensor.name for tensor in header.tensors}
    if len(names) < len(header.tensors) or any(one[1] > other[0] for one, other in pairwise(ranges)):
        raise UserError(f"{path} is damaged: two of its tensors are in one place, or have one name. Download it again.")


def _convert_into(path: Path, directory: Path) -> None:
    size_mb = path.stat().st_size / 1e6
    say(f"Converting {path.name} ({size_mb:.0f} MB) to safetensors; this happens once and takes half a minute ...")
    start = time.perf_counter()
    try:
        with no_progress_bars():
            tokenizer = gguf_tokenizer(path)
            module = _module(path)
    except Exception as error:  # of many kinds: whatever transformers stumbles over, the file is at fault
        raise UserError(
            f"{path} is a whole GGUF file, but of a kind that transformers cannot convert: "
            f"{_describe(error)}. Use the model's directory in Hugging Face format (config.json, safetensors, "
            "tokenizer) instead."
        ) from error
    with no_progress_bars():
        module.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    written_mb = sum(file.stat().st_size for file in directory.iterdir()) / 1e6
    say(f"Converted in {time.perf_counter() - start:.0f} s: {written_mb:.0f} MB in {directory.parent}.")


def _describe(error: Exception) -> str:
    """An error's text, with its kind unless it is one that says in words what is wrong."""
    return str(error) if isinstance(error, (ValueError, NotImplementedError)) else f"{type(error).__name__}: {error}"


def _module(path: Path) -> Any:
    """The model with the file's tensors, dequantized, in the dtype that it is saved in.

    Quantized files become bfloat16: 4 or 8 bits lost far more than bfloat16's rounding does, the models were published
    in bfloat16, it halves disk space and loading time, and the policy at step 0 is then the same on machines that
    compute in bfloat16 and in float32. Files with matrices that are not quantized become float32, to lose nothing.
    """
    header = GgufHeader.from_file(str(path))
    config, metadata = _config(path, header)
    # On the meta device: no memory is allocated and nothing initialised before the tensors are assigned.
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    # Matrices decide: norms and biases are float32 even in quantized files.
    matrices = [tensor for tensor in header.tensors if len(tensor.shape) > 1]
    exact = any(tensor.ggml_type in (GGML_F32, GGML_F16) for tensor in matrices)
    dtype = torch.float32 if exact else torch.bfloat16
    # Not `from_pretrained(gguf_file=...)`: that needs `accelerate`, and refuses to save the module that it returns.
    names: Any = _NamesOnly(module)
    _check_places(header, names)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=names, torch_dtype=dtype)["tensors"]
    own = module.state_dict()
    if wrong := [name for name, tensor in tensors.items() if name in own and tensor.shape != own[name].shape]:
        found, wanted = list(tensors[wrong[0]].shape), list(own[wrong[0]].shape)
        raise ValueError(f"{wrong[0]} has the shape {found}, and by its metadata it should have {wanted}")
    module.load_state_dict(tensors, strict=False, assign=True)
    # A file with tied embeddings lacks the LM head; whatever is still on the meta device now is really missing.
    module.tie_weights()
    if missing := [name for name, parameter in module.named_parameters() if parameter.is_meta]:
        raise ValueError(f"{len(missing)} of the architecture's tensors are not in it, such as {missing[0]}")
    ids = stop_ids(metadata)
    module.generation_config.eos_token_id = ids[0] if len(ids) == 1 else ids or None
    return module


def gguf_config(path: Path) -> Any:
    """The config of the model in a `.gguf` file, read from its header alone. Raises UserError as `convert` does."""
    _check_whole(path)
    try:
        return _config(path, GgufHeader.from_file(str(path)))[0]
    except Exception as error:  # of many kinds: whatever transformers stumbles over, the file is at fault
        raise UserError(f"{path} has a header that transformers cannot use: {_describe(error)}.") from error


def _config(path: Path, header: GgufHeader) -> tuple[Any, dict[str, Any]]:
    """The config that the header gives, and the header's metadata."""
    metadata, _ = read_gguf_metadata(str(path))
    check_metadata(metadata)
    check_sizes(metadata, [tensor.shape for tensor in header.tensors])
    found = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
    return complete_config(found, metadata, _rope_tensors(path, header)), metadata


def _rope_tensors(path: Path, header: GgufHeader) -> dict[str, list[float]]:
    """The factors of rotary frequencies by the names of their tensors; empty if the file has none."""
    found = {}
    for tensor in header.tensors:
        if tensor.name in ROPE_TENSORS:
            start = header.data_start + tensor.offset
            values = np.fromfile(path, np.uint8, tensor.nbytes, offset=start)
            found[tensor.name] = values.view(np.float16 if tensor.ggml_type == GGML_F16 else np.float32).tolist()
    return found


def _check_places(header: GgufHeader, names: Any) -> None:
    """Raise ValueError if a tensor of the file has no place in the model: transformers would leave it out."""
    processor = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(config=names.config.to_dict())
    places = get_gguf_hf_weights_map(names, processor)
    homeless = [tensor.name for tensor in header.tensors if tensor.name not in places]
    # The tensors of experts lie together in a file, under names without an ending.
    left = [name for name in homeless if name not in ROPE_TENSORS and name.removesuffix(".weight") not in places]
    if left:
        raise ValueError(f"{len(left)} of its tensors have no place in the architecture, such as {left[0]}")


class _NamesOnly:
    """The part of a model that `load_gguf_checkpoint` reads, without children.

    For each submodule it would build a table of tensor names, which takes most of its time; it needs the outermost
    one only.
    """

    def __init__(self, module: Any) -> None:
        self.config = module.config
        self.state_dict = module.state_dict

    def named_children(self) -> tuple[()]:  # the name is PyTorch's
        return ()
