"""What a training step needs on a GPU, in memory and in floating-point operations: computed, not run.

The whole step of slimrl, forward, backward and update, runs on PyTorch's fake tensors of the device `cuda`: each
operation makes tensors of the right shape and dtype, without numbers. Counted are the bytes of all that are alive at
once, and the operations by PyTorch's own formulas. What a GPU adds is not in it: the CUDA context, gaps in the
allocator's memory, workspaces of kernels. Nothing here says how fast a step is.

The batch is one row of T tokens: a prompt of a quarter of them, and eight rollouts on it. Of FlexAttention, for which
PyTorch's formula has every query meet every key, the share of blocks counts that are computed.

    python -m benchmarks.speed.gpu_memory
    python -m benchmarks.speed.gpu_memory --run --shapes 0.5B     # and runs the same steps, on this machine's GPU
"""

import argparse
import gc
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.models.forward.attention import ATTENTION
from slimrl.trainer import logprobs
from slimrl.trainer.attention_blocks import BlockAttention
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.packing import pack_samples
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample
from tests.fake_cuda import CUDA, Alone, fake_cuda

ROLLOUTS = 8
# Of Qwen2.5-0.5B and Qwen2.5-7B.
SHAPES: dict[str, dict[str, Any]] = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "7B": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
}
HEAD = ("shape", "T", "weights and optimizer GiB", "step adds GiB", "with all logits at once", "TFLOP", "in attention")


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the GPU's tensors that are alive: `now`, and at most, `peak`."""

    supports_higher_order_operators = True  # FlexAttention is one

    def __init__(self, module: nn.Module) -> None:
        TorchDispatchMode.__init__(self)
        self.now = self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        for parameter in module.parameters():
            self._count(parameter)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.device == CUDA:
                self._count(leaf)
        return out

    def _count(self, tensor: Tensor) -> None:
        # Views share the storage of the tensor that they are of.
        storage = tensor.untyped_storage()
        if storage not in self._known:
            self._known.add(storage)
            self._add(storage.nbytes())
            weakref.finalize(storage, self._add, -storage.nbytes())

    def _add(self, num_bytes: int) -> None:
        self.now += num_bytes
        self.peak = max(self.peak, self.now)


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes of weights and optimizer, those at the peak of the step, and the step's operations."""

    state: int
    peak: int
    flops: Mapping[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[8192, 32768])
    parser.add_argument("--run", action="store_true", help="run the steps on a GPU too, and set its peak beside")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu_memory.json")
    arguments = parser.parse_args()
    facts = machine_facts()
    results = []
    for shape in arguments.shapes:
        for num_tokens in arguments.tokens:
            results.append(result_of(shape, num_tokens))
            if arguments.run:
                results[-1] |= run_on_gpu(shape, num_tokens)
            print(f"{shape}, {num_tokens} tokens: done", flush=True)
    print(f"\n{table(results)}")
    content = {"torch": torch.__version__, "rollouts": ROLLOUTS, "computed_by": "fake tensors", "results": results}
    write_result(arguments.output, facts, content, {})


def result_of(shape: str, num_tokens: int) -> dict[str, Any]:
    """The costs of one step, and its peak if the logits of all trained tokens were computed at once."""
    samples = group_of(num_tokens)
    cost, at_once = cost_of(shape, samples, num_tokens), cost_of(shape, samples, num_tokens, chunk=num_tokens)
    (pack,) = pack_samples(samples, sys.maxsize, torch.device("cpu"))
    some, _ = BlockAttention(pack)._blocks(window=0)
    share = float(some.float().mean())
    attention = share * sum(count for name, count in cost.flops.items() if name.startswith("flex_attention"))
    others = sum(count for name, count in cost.flops.items() if not name.startswith("flex_attention"))
    return {
        "shape": shape,
        "row_tokens": len(pack.token_ids_T),
        "trained_tokens": len(pack.source_N),
        "state_bytes": cost.state,
        "peak_bytes": cost.peak,
        "peak_bytes_with_all_logits_at_once": at_once.peak,
        "share_of_blocks": round(share, 3),
        "attention_flop": int(attention),
        "other_flop": others,
    }


def group_of(num_tokens: int) -> tuple[Sample, ...]:
    """Eight rollouts on one prompt, whose row has `num_tokens` tokens."""
    prompt = num_tokens // 4
    length = (num_tokens - prompt) // ROLLOUTS
    num = prompt + length + 1  # the last token is predicted, and not in the row
    return tuple(
        Sample(
            token_ids_T=(*range(prompt), *[prompt + number] * (length + 1)),
            loss_mask_T=(*[False] * prompt, *[True] * (length + 1)),
            logprobs_T=(-1.0,) * num,
            advantages_T=(1.0,) * num,
            version=-1,
        )
        for number in range(ROLLOUTS)
    )


def cost_of(shape: str, samples: Sequence[Sample], num_tokens: int, chunk: int = logprobs.CHUNK) -> Cost:
    """The cost of one step in bfloat16 with the default loss, all in one forward."""
    default, logprobs.CHUNK = logprobs.CHUNK, chunk
    try:
        with fake_cuda():
            module = module_of(shape)
            counter, flops = LiveBytes(module), FlopCounterMode(display=False)
            with counter:
                optimizer = MasterAdamW(module, OptimConfig())
            state = counter.now
            config = TrainerConfig(micro_batch_tokens=2 * num_tokens)
            step = TrainStep(module, optimizer, config, num_tokens, ranks=Alone())
            with counter, flops:
                step(Batch(tuple(samples), 1.0), lr_factor=1.0, version=0)
            counts = {str(name): count for name, count in flops.get_flop_counts()["Global"].items()}
            return Cost(state, counter.peak, counts)
    finally:
        logprobs.CHUNK = default


def run_on_gpu(shape: str, num_tokens: int) -> dict[str, Any]:
    """What this machine's GPU allocates at most in the same step, and how long it takes: the median of three."""
    gc.collect()  # hooks and parameters hold one another, so what an earlier step left ends here
    torch.cuda.empty_cache()
    module = module_of(shape)
    optimizer = MasterAdamW(module, OptimConfig())
    state = torch.cuda.memory_allocated()
    step = TrainStep(module, optimizer, TrainerConfig(micro_batch_tokens=2 * num_tokens), num_tokens)
    seconds = []
    for number in range(4):  # the first compiles
        torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        step(Batch(group_of(num_tokens), 1.0), lr_factor=0.0, version=0)
        torch.cuda.synchronize()
        seconds += [time.perf_counter() - began] if number else []
    return {
        "gpu": torch.cuda.get_device_name(),
        "measured_state_bytes": state,
        "measured_peak_bytes": torch.cuda.max_memory_allocated(),
        "measured_reserved_bytes": torch.cuda.max_memory_reserved(),
        "step_s": sorted(seconds)[1],
    }


def module_of(shape: str) -> nn.Module:
    """A model of that shape in bfloat16."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with CUDA:
            config = Qwen2Config(**SHAPES[shape], attn_implementation=ATTENTION)
            module: nn.Module = Qwen2ForCausalLM(config).eval()
            return module
    finally:
        torch.set_default_dtype(torch.float32)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The results as a table."""
    rows = []
    for result in results:
        state = result["state_bytes"]
        total = result["attention_flop"] + result["other_flop"]
        added = [(result[key] - state) / 2**30 for key in ("peak_bytes", "peak_bytes_with_all_logits_at_once")]
        rows.append(
            (
                result["shape"],
                f"{result['row_tokens']:,}",
                f"{state / 2**30:.1f}",
                *(f"{gib:.1f}" for gib in added),
                f"{total / 1e12:,.0f}",
                f"{result['attention_flop'] / total:.0%}",
            )
        )
    return markdown_table(HEAD, rows)


if __name__ == "__main__":
    main()
