"""What this machine can do, measured, and what a piece of work needs of it, counted: together the limit of a speed.

`python -m benchmarks.harness.roofline` measures GFLOP/s of a large matrix product in each number format, and GB/s of
reading a gigabyte that no cache holds. `measure.py` runs it before every process that it times, so that a machine that
became slower in between shows. The limit of a piece of work is the longer of the time for its arithmetic and the time
for reading what it must read once, as if the two overlapped perfectly. Knows nothing of what is timed."""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

SIZES = {"cpu": 2048, "cuda": 8192}  # of the matrices, in rows and columns
READ = 16384  # of the matrix that is read, in rows and columns of float32: 1.07 GB
NUM_TIMED = 10


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers of a decoder that its work is counted from. `head` is vocabulary times width."""

    params: int
    head: int
    tied: bool
    layers: int
    attention_width: int
    kv_width: int

    @property
    def body(self) -> int:
        """Parameters that every token of a forward is multiplied with; the head comes on top where it is needed."""
        return self.params - self.head if self.tied else self.params - 2 * self.head


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic, and bytes that have to come from memory at least once."""

    gflop: float
    gigabytes: float

    def seconds(self, gflops: float, gb_per_s: float) -> float:
        """The least time it can take."""
        return max(self.gflop / gflops, self.gigabytes / gb_per_s)

    def share(self, num: int) -> "Work":
        """One of `num` equal parts."""
        return Work(self.gflop / num, self.gigabytes / num)


def model_shape(directory: Path) -> ModelShape:
    """Read from a directory in Hugging Face format."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    params = 0
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dictionary)
                params += torch.Size(file.get_slice(name).get_shape()).numel()
    return ModelShape(
        params=params,
        head=config["vocab_size"] * config["hidden_size"],
        tied=config.get("tie_word_embeddings", False),
        layers=config["num_hidden_layers"],
        attention_width=config["num_attention_heads"] * head_dim,
        kv_width=config["num_key_value_heads"] * head_dim,
    )


def decode_work(shape: ModelShape, batch: int, context: float, width: int) -> Work:
    """One token for each sequence: all weights read once, and the keys and values of `context` tokens a sequence.

    `width` is the bytes of a number.
    """
    attention = 4 * shape.layers * shape.attention_width * context
    kv_bytes = 2 * shape.layers * shape.kv_width * context * width
    weights = (shape.body + shape.head) * width
    return Work(batch * (2 * (shape.body + shape.head) + attention) / 1e9, (weights + batch * kv_bytes) / 1e9)


def prefill_work(shape: ModelShape, batch: int, prompt: int, width: int, known: int = 0) -> Work:
    """The forward of `batch` prompts behind `known` tokens whose keys and values are there: causal attention, and the
    head for the last token of each."""
    pairs = prompt * known + prompt * (prompt + 1) / 2
    flop = batch * (2 * shape.body * prompt + 2 * shape.head + 4 * shape.layers * shape.attention_width * pairs)
    return Work(flop / 1e9, (shape.body + shape.head) * width / 1e9)


def train_work(shape: ModelShape, tokens: int, trained: int, pairs: int, width: int) -> Work:
    """Forward and backward of `tokens` tokens, the head on the `trained` ones, `pairs` of query and key in attention.

    The backward pass is twice the forward. The update is counted by its traffic: the gradient, the master and both
    moments are each read and written once, in float32, and the weights written.
    """
    forward = 2 * shape.body * tokens + 2 * shape.head * trained + 4 * shape.layers * shape.attention_width * pairs
    return Work(3 * forward / 1e9, (3 * width + 4 * 2 * 4) * shape.params / 1e9)


def measure(device: str = "cpu") -> dict[str, Any]:
    """The best of several tries, on as many threads as PyTorch uses in this process, or on a GPU."""
    formats = (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    speeds = {f"{name}_gflops": round(_gflops(dtype, device)) for name, dtype in formats}
    found = {**speeds, "memory_gb_per_s": round(_gb_per_s(device), 1), "threads": torch.get_num_threads()}
    return found if device == "cpu" else {**found, "gpu": torch.cuda.get_device_name()}


def _gflops(dtype: torch.dtype, device: str) -> float:
    # Random numbers: a GPU multiplies ones faster, as they cost it less power.
    size = SIZES[device]
    matrix = torch.randn(size, size, dtype=dtype, device=device)
    return 2e-9 * size**3 / _least_s(lambda: torch.mm(matrix, matrix))


def _gb_per_s(device: str) -> float:
    matrix, vector = torch.ones(READ, READ, device=device), torch.ones(READ, device=device)
    return 4e-9 * READ**2 / _least_s(lambda: torch.mv(matrix, vector))


def _least_s(call: Callable[[], torch.Tensor]) -> float:
    """The shortest time: other processes can only make it longer."""

    def finish() -> None:
        call()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    finish()
    seconds = []
    for _ in range(NUM_TIMED):
        began = time.perf_counter()
        finish()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="file to write; without it the figures are printed")
    parser.add_argument("--device", choices=SIZES, default="cpu")
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments.device), indent=1)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
