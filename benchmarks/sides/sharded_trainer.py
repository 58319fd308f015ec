"""One process of the benchmarks `sharding.py` and `recompute.py`: steps on made-up samples, and what they cost it.

Started with the variables that torchrun sets. The first of the processes writes what all of them measured.
"""

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.launch.ranks import join_ranks
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.lora import adapt, keep_merged
from slimrl.models.shards import own_part, whole
from slimrl.trainer.fsdp import shard
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.parallel import Ranks
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample

VOCAB = 2048


def make_module(dtype: torch.dtype, lora_rank: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=384,
        intermediate_size=1024,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    causal = LlamaForCausalLM(config).to(dtype).eval()
    causal.set_attn_implementation(ATTENTION)
    module: nn.Module = causal
    if lora_rank:
        adapt(module, LoraConfig(rank=lora_rank), "made-up")
        keep_merged(module)
    return module


def batch_of(step: int, num_samples: int, seq_len: int) -> Batch:
    rng = random.Random(step)
    samples = []
    for _ in range(num_samples):
        mask = (False,) * (seq_len // 4) + (True,) * (seq_len - seq_len // 4)
        ids = tuple(rng.randrange(VOCAB) for _ in mask)
        samples.append(Sample(ids, mask, (-7.6,) * seq_len, (rng.gauss(0, 1),) * seq_len, version=-1))
    return Batch(tuple(samples), 1.0)


def memory_mb(field: str) -> float:
    """`VmRSS`, what the process holds, or `VmHWM`, the most that it has held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def measure(ranks: Ranks, arguments: argparse.Namespace) -> dict[str, Any]:
    keep_freed_memory()
    bare = memory_mb("VmRSS")
    module = shard(make_module(getattr(torch, arguments.dtype), arguments.lora_rank, arguments.layers), ranks)
    config = TrainerConfig(
        micro_batch_tokens=arguments.seq_len,
        optim=OptimConfig(lr=1e-4),
        activation_checkpointing=arguments.activation_checkpointing,
    )
    optimizer = MasterAdamW(module, config.optim, None, ranks)
    step = TrainStep(module, optimizer, config, arguments.seq_len, (), ranks)
    Path("/proc/self/clear_refs").write_text("5")  # what was held while loading is no part of the peak
    seconds = []
    for number in range(arguments.steps):
        began = time.perf_counter()
        step(batch_of(number, arguments.num_samples, arguments.seq_len), 1.0, version=number)
        seconds.append(time.perf_counter() - began)
    peak = memory_mb("VmHWM") - bare
    states = [tensor for state in optimizer.state_dict()["parameters"].values() for tensor in state.items()]
    moments = sum(own_part(tensor).nbytes for name, tensor in states if name != "master")
    low = sum(2 * own_part(p.detach()).numel() for p in module.parameters() if p.requires_grad and p.itemsize == 2)
    # Merged matrices are buffers in one process and parameters in several.
    weights = sum(own_part(t.detach()).nbytes for t in (*module.parameters(), *module.buffers()))
    num = sum(p.numel() for name, p in module.named_parameters() if ".lora_" not in name and "merged" not in name)
    held = ranks.all_of((weights + low + moments) / num)
    trained = {name: whole(p.detach()) for name, p in module.named_parameters() if p.requires_grad}
    if ranks.leads and arguments.weights:
        torch.save(trained, arguments.weights)
    seconds = sorted(seconds[1:])
    return {
        "parameters": num,
        "held_bytes_per_parameter": max(held),
        "peak_mb": max(ranks.all_of(peak)),
        "step_s": seconds[len(seconds) // 2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--lora-rank", type=int, default=0)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--num-samples", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with join_ranks(os.environ, ModelConfig(device="cpu")) as (ranks, _):
        report = measure(ranks, arguments)
        if ranks.leads:
            arguments.output.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
