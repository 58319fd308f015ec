"""llama.cpp by the package xllamacpp: its log-probabilities of a model file, and its quantizer.

`pip install xllamacpp`, or the group `llamacpp`. The quantizer has no Python interface, so its C function is called.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xllamacpp
from xllamacpp import xllamacpp as library

NUM_CODES = 43  # GGML_TYPE_COUNT in xllamacpp 2026.10.11549; the library crashes at higher codes
# Types that hold indices, and types for activations: llama.cpp does not write them into a model's file.
NO_WEIGHTS = {"i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"}


class Quantizer:
    """llama.cpp's quantizer, without knowledge about the importance of weights.

    `types` maps the name of each type of weights to its code and the number of values in a block.
    """

    def __init__(self) -> None:
        self._c = ctypes.CDLL(library.__file__)
        self._c.ggml_type_name.restype = ctypes.c_char_p
        self._c.ggml_blck_size.restype = ctypes.c_int64
        self._c.ggml_type_size.restype = ctypes.c_size_t
        self._c.ggml_quantize_chunk.restype = ctypes.c_size_t
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._c.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
        names = {code: self._c.ggml_type_name(code) for code in range(NUM_CODES)}
        sizes = {code: int(self._c.ggml_blck_size(code)) for code, name in names.items() if name}
        found = {names[code].decode(): (code, size) for code, size in sizes.items() if size}  # 0: removed types
        self.types = {name: found[name] for name in found.keys() - NO_WEIGHTS}

    def quantize(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return the bytes (rows, M) of a float32 matrix in the type."""
        code, per_block = self.types[name]
        rows, columns = values.shape
        assert columns % per_block == 0, f"{name} has blocks of {per_block}, and a row has {columns} values"
        source = np.ascontiguousarray(values, np.float32)
        target = np.zeros((rows, columns // per_block * self._c.ggml_type_size(code)), np.uint8)
        importance = np.ones(columns, np.float32)  # the types of about two bits need it
        pointers = source.ctypes.data, target.ctypes.data
        written = self._c.ggml_quantize_chunk(code, *pointers, 0, rows, columns, importance.ctypes.data)
        assert written == target.nbytes
        return target


class LlamaCpp:
    """A model file, loaded by llama.cpp on the CPU."""

    def __init__(self, path: Path, context: int, threads: int = 1) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.n_gpu_layers = context, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.warmup, params.verbosity = False, -1
        self._server = xllamacpp.Server(params)

    def next_logprobs(self, token_ids: Sequence[int], num: int) -> dict[int, float]:
        """Return the log-probabilities of the `num` most probable tokens after `token_ids`."""
        # The log-probabilities are from before the bias. Other tokens may have no text, and then the answer has none.
        request = {"prompt": list(token_ids), "max_tokens": 1, "logprobs": num, "logit_bias": [["a", 1e4]]}
        answer: dict[str, Any] = self._server.handle_completions(request)
        [entry] = answer["choices"][0]["logprobs"]["content"]
        return {int(row["id"]): float(row["logprob"]) for row in entry["top_logprobs"]}
