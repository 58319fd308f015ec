"""Converts a `.gguf` file to a directory in Hugging Face format, once, in the cache. Knows nothing of chat or training.

transformers reads (dequantizes) the weights and the tokenizer. This module adds a check that the file is complete, the
pre-tokenizers that transformers does not know, and the cache.
"""

import struct
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.integrations.gguf.reader import GgufHeader, read_gguf_metadata
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root, file_sha256, say
from slimrl.models.quiet import no_progress_bars

# The version of the conversion: cache entries that another version built are rebuilt.
RECIPE = "gguf-1"

# `tokenizer.ggml.pre` names the pre-tokenizer, which splits text before BPE merges. transformers knows some values and
# treats all others as GPT-2's. These split off every digit first (llama.cpp, `llm_tokenizer_bpe`) ...
SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
# ... and for these GPT-2's is right. Any other would be split wrongly without a warning, so it is refused.
PLAIN_GPT2 = frozenset({"gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "trillion", "granite-docling"})

GGML_F32, GGML_F16 = 0, 1  # tensor types that are not quantized


def convert(path: Path) -> Path:
    """The cached directory with this `.gguf` file in Hugging Face format; the file is converted if it is missing.

    Raises UserError if the file is not a complete GGUF file, or of a kind that transformers cannot read.
    """
    _check_whole(path)
    directory = cache_root() / "models" / f"{path.stem}-{file_sha256(path)[:16]}"
    return build_once(directory, lambda temporary: _convert_into(path, temporary), RECIPE)


def _check_whole(path: Path) -> None:
    """Raise UserError if a tensor that the header lists lies outside the file. Takes a few milliseconds."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise UserError(
            f"{path} is not a GGUF file: it begins with {magic!r} instead of b'GGUF'. A file of a few hundred bytes "
            "may be a Git LFS pointer or an error page; download it again."
        )
    size = path.stat().st_size
    try:
        header = GgufHeader.from_file(str(path))
    except (struct.error, OverflowError, IndexError, UnicodeDecodeError, MemoryError) as error:
        raise UserError(f"{path} is cut off or damaged: its header cannot be read. Download it again.") from error
    except ValueError as error:
        raise UserError(f"{path} cannot be used: {error}") from error
    needed = max((header.data_start + tensor.offset + tensor.nbytes for tensor in header.tensors), default=0)
    if not header.tensors or size < needed:
        raise UserError(
            f"{path} is cut off: its header lists {len(header.tensors)} tensors that end at byte {needed:,}, but the "
            f"file has {size:,} bytes. Download it again."
        )


def _convert_into(path: Path, directory: Path) -> None:
    size_mb = path.stat().st_size / 1e6
    say(f"Converting {path.name} ({size_mb:.0f} MB) to safetensors; this happens once and takes half a minute ...")
    start = time.perf_counter()
    try:
        with no_progress_bars():
            tokenizer = _tokenizer(path)
            module = _module(path)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise UserError(
            f"{path} is a whole GGUF file, but of a kind that transformers cannot convert: {error}. Use the model's "
            "directory in Hugging Face format (config.json, safetensors, tokenizer) instead."
        ) from error
    with no_progress_bars():
        module.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    written_mb = sum(file.stat().st_size for file in directory.iterdir()) / 1e6
    say(f"Converted in {time.perf_counter() - start:.0f} s: {written_mb:.0f} MB in {directory.parent}.")


def _tokenizer(path: Path) -> Any:
    metadata, _ = read_gguf_metadata(str(path))
    # Not AutoTokenizer: the result is the same, but it reads the whole file once more to name the architecture.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path.parent, gguf_file=path.name)
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        # A BPE tokenizer. Its merges depend on the pre-tokenizer, which transformers may have got wrong.
        kind = metadata.get("tokenizer.ggml.pre", "gpt-2")
        if kind in SINGLE_DIGITS:
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        elif kind not in PLAIN_GPT2 and kind not in GGUF_PRE_TOKENIZER_SPLITS:
            raise ValueError(f"its pre-tokenizer `{kind}` is not known here")
    return tokenizer


def _module(path: Path) -> Any:
    """The model with the file's tensors, dequantized, in the dtype that it is saved in.

    Quantized files become bfloat16: 4 or 8 bits lost far more than bfloat16's rounding does, the models were published
    in bfloat16, it halves disk space and loading time, and the policy at step 0 is then the same on machines that
    compute in bfloat16 and in float32. Files with matrices that are not quantized become float32, to lose nothing.
    """
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    # On the meta device: no memory is allocated and nothing initialised before the tensors are assigned.
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    # Matrices decide: norms and biases are float32 even in quantized files.
    matrices = [tensor for tensor in GgufHeader.from_file(str(path)).tensors if len(tensor.shape) > 1]
    exact = any(tensor.ggml_type in (GGML_F32, GGML_F16) for tensor in matrices)
    dtype = torch.float32 if exact else torch.bfloat16
    # Not `from_pretrained(gguf_file=...)`: that needs `accelerate`, and refuses to save the module that it returns.
    names: Any = _NamesOnly(module)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=names, torch_dtype=dtype)["tensors"]
    module.load_state_dict(tensors, strict=False, assign=True)
    # A file with tied embeddings lacks the LM head; whatever is still on the meta device now is really missing.
    module.tie_weights()
    if missing := [name for name, parameter in module.named_parameters() if parameter.is_meta]:
        raise ValueError(f"{len(missing)} of the architecture's tensors are not in it, such as {missing[0]}")
    return module


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
