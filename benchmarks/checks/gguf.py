"""Compares slimrl's log-probabilities of a real `.gguf` file with llama.cpp's. Measures the time and memory
of loading.

    uv run --group llamacpp python -m benchmarks.checks.gguf [--model FILE.gguf]

Without `--model`, the file is Qwen2.5-Coder-0.5B-Instruct (`benchmarks/harness/qwen_coder.py`). llama.cpp rounds each
layer's inputs to 8 bits, and keeps embedding and LM head as stored; slimrl computes with bfloat16 weights. So the two
differ, by less than two quantizations of a model do. Writes `benchmarks/results/gguf.json`.
"""

import argparse
import resource
import statistics
import time
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.harness.llama_cpp import LlamaCpp
from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from benchmarks.harness.qwen_coder import qwen_coder
from slimrl.config.model import ModelConfig
from slimrl.models.forward.module import head_logits, last_hidden
from slimrl.models.gguf import convert
from slimrl.models.load import Policy, load_policy

TEXT = '''The library of Alexandria was one of the largest of the ancient world. Nobody knows how many scrolls it held.

def fibonacci(n: int) -> int:
    """Return the n-th Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
'''
NUM = 20  # the most probable tokens of each position are compared


def load(path: Path, dtype: Literal["bfloat16", "float32"]) -> tuple[Policy, dict[str, Any]]:
    """Load the file and measure time and peak memory."""
    start = time.perf_counter()
    directory = convert(path)
    converted = time.perf_counter()
    policy = load_policy(ModelConfig(name=str(directory), device="cpu", dtype=dtype))
    return policy, {
        "num_parameters": sum(parameter.numel() for parameter in policy.module.parameters()),
        "convert_s": round(converted - start, 1),
        "load_s": round(time.perf_counter() - converted, 1),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
    }


@torch.inference_mode()
def our_logprobs(policy: Policy, token_ids: list[int]) -> torch.Tensor:
    """Return the log-probabilities (T, V) after each token."""
    positions = torch.arange(len(token_ids))
    hidden = last_hidden(policy.module, torch.tensor(token_ids), positions, None)
    return head_logits(policy.module, hidden).float().log_softmax(-1)


def compare(path: Path, policy: Policy, threads: int) -> dict[str, Any]:
    """Compare the most probable tokens of llama.cpp at each position of the text, and the text's own tokens."""
    token_ids: list[int] = policy.tokenizer.encode(TEXT)
    ours = our_logprobs(policy, token_ids)
    model = LlamaCpp(path, context=2 * len(token_ids), threads=threads)
    likely, text, same = [], [], []
    for place in range(len(token_ids) - 1):
        theirs = model.next_logprobs(token_ids[: place + 1], NUM)
        likely += [abs(value - float(ours[place, token])) for token, value in theirs.items()]
        same.append(int(ours[place].argmax()) == next(iter(theirs)))
        if (following := token_ids[place + 1]) in theirs:
            text.append(abs(theirs[following] - float(ours[place, following])))
    return {
        "num_positions": len(same),
        "mean_difference": round(statistics.mean(text), 4),
        "mean_difference_likely": round(statistics.mean(likely), 4),
        "same_best_token": round(statistics.mean(same), 3),
    }


def table(found: dict[str, Any]) -> str:
    """One row a number."""
    return markdown_table(("what", "measured"), [(name, f"{value:,}") for name, value in found.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a .gguf file")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "gguf.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    path = arguments.model or qwen_coder()
    policy, costs = load(path, arguments.dtype)
    found = costs | compare(path, policy, arguments.threads)
    print(table(found))
    write_result(arguments.output, facts, {"model": path.name, **found}, {str(path): path.name})


if __name__ == "__main__":
    main()
