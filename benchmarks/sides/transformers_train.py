"""The transformers side of `train_step.py`: the plain module on padded batches, and PyTorch's fused AdamW.

Logits are made for trained positions alone, as far as `logits_to_keep` allows: for the end of the row, from the first
trained position of any sequence on.
"""

import time
from collections.abc import Sequence as Several
from importlib.metadata import version
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

from benchmarks.harness.train_work import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    WARM_UP_STEPS,
    Sequence,
    TrainReport,
    batch_of,
    side_arguments,
)

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
NOT_TRAINED = -100


def main() -> None:
    parser = side_arguments()
    parser.add_argument("--micro-batch", type=int, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    module: Any = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=DTYPES[arguments.dtype])
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    # Sorted by length, so that a micro-batch has little padding.
    sequences = batch_of(arguments.work, module.config.vocab_size, arguments.group)
    sequences.sort(key=lambda sequence: len(sequence.token_ids))
    report = TrainReport(
        side="transformers",
        versions={name: version(name) for name in ("torch", "transformers")},
        settings=f"{arguments.dtype} weights and moments, micro-batches of {arguments.micro_batch} padded sequences, "
        f"{module.config._attn_implementation} attention, no gradient checkpointing",
        num_threads=arguments.threads,
    )
    num_trained = sum(sequence.num_trained for sequence in sequences)
    for step in range(WARM_UP_STEPS + arguments.steps):
        began = time.perf_counter()
        total = 0.0
        for first in range(0, len(sequences), arguments.micro_batch):
            loss = loss_sum(module, sequences[first : first + arguments.micro_batch]) / num_trained
            loss.backward()
            total += loss.item()
        if arguments.gradient and step == 0:
            save_file({name: p.grad for name, p in module.named_parameters()}, arguments.gradient)
        norm = float(torch.nn.utils.clip_grad_norm_(module.parameters(), MAX_GRAD_NORM))
        optimizer.step()
        optimizer.zero_grad()
        report.add_step(step, time.perf_counter() - began, total, norm)
    report.write(arguments.output)


def loss_sum(module: Any, sequences: Several[Sequence]) -> Tensor:
    """-A log p(token), summed over the trained tokens."""
    longest, first = max(len(s.token_ids) for s in sequences), min(s.prompt for s in sequences)
    pad = [longest - len(sequence.token_ids) for sequence in sequences]
    token_ids = torch.tensor([[*s.token_ids, *[0] * num] for s, num in zip(sequences, pad, strict=True)])
    mask = torch.tensor([[1] * (longest - num) + [0] * num for num in pad])
    targets = token_ids.masked_fill(mask == 0, NOT_TRAINED)[:, first:]
    advantages = torch.tensor([sequence.advantage for sequence in sequences])
    output = module(token_ids, attention_mask=mask, use_cache=False, logits_to_keep=longest - first + 1)
    logits = output.logits[:, :-1].float().flatten(0, 1)
    losses = F.cross_entropy(logits, targets.flatten(), ignore_index=NOT_TRAINED, reduction="none")
    return (losses.view_as(targets).sum(-1) * advantages).sum()


if __name__ == "__main__":
    main()
