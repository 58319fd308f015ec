"""Our side of `train_step.py`: the train step of the `rl` command, prompts shared within a group or not."""

import argparse
import time
from importlib.metadata import version
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmarks.harness.train_work import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    WARM_UP_STEPS,
    Sequence,
    TrainReport,
    batch_of,
    side_arguments,
)
from slimrl.config.loss import LossConfig
from slimrl.config.model import ModelConfig
from slimrl.config.train import OptimConfig, TrainerConfig
from slimrl.models.load import load_policy
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample


def main() -> None:
    parser = side_arguments()
    parser.add_argument("--micro-batch-tokens", type=int, required=True)
    parser.add_argument(
        "--dense", action="store_true", help="every sample in a micro-batch of its own: nothing is shared"
    )
    arguments = parser.parse_args()
    policy = load_policy(
        ModelConfig(name=str(arguments.model), device="cpu", dtype=arguments.dtype, num_threads=arguments.threads)
    )
    causal: Any = policy.module
    sequences = batch_of(arguments.work, causal.get_input_embeddings().num_embeddings, arguments.group)
    seq_len = max(len(sequence.token_ids) for sequence in sequences)
    config = TrainerConfig(
        optim=OptimConfig(lr=LEARNING_RATE, max_grad_norm=MAX_GRAD_NORM),
        loss=LossConfig(type="reinforce", aggregation="token"),
        micro_batch_tokens=seq_len if arguments.dense else arguments.micro_batch_tokens,
    )
    batch = Batch(tuple(map(sample, sequences)), temperature=1.0)
    # Before the optimizer, which takes the gradients out of the module as soon as they are there.
    gradient = collect_gradient(policy.module) if arguments.gradient else {}
    train_step = TrainStep(policy.module, MasterAdamW(policy.module, config.optim), config, seq_len)
    report = TrainReport(
        side="slimrl",
        versions={name: version(name) for name in ("slimrl", "torch", "transformers")},
        settings=f"{arguments.dtype} compute, float32 master weights, micro-batches of {config.micro_batch_tokens} "
        f"tokens, {'nothing' if arguments.dense else 'prompts'} shared",
        num_threads=arguments.threads,
    )
    for step in range(WARM_UP_STEPS + arguments.steps):
        began = time.perf_counter()
        metrics = train_step(batch, lr_factor=1.0, version=step)
        report.add_step(step, time.perf_counter() - began, metrics["loss/policy"], metrics["optim/grad_norm"])
        assert metrics["loss/tokens"] == sum(sequence.num_trained for sequence in sequences)
        if arguments.gradient:
            write_gradient(arguments, gradient, metrics["optim/grad_norm"])
            break
    report.write(arguments.output)


def sample(sequence: Sequence) -> Sample:
    """As the trainer takes it. Of no version that is trained, so nothing is compared with a sampler, of which there is
    none; the loss does not look at the old log-probabilities."""
    num, trained = len(sequence.token_ids), [t >= sequence.prompt for t in range(len(sequence.token_ids))]
    zeros, advantages = (0.0,) * num, (sequence.advantage,) * num
    return Sample(sequence.token_ids, tuple(trained), zeros, advantages, version=-1)


def collect_gradient(module: nn.Module) -> dict[str, Tensor]:
    """A dictionary that fills with the sum of all gradients, by name, while backward passes run."""
    total: dict[str, Tensor] = {}

    def add(name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        total[name] = total[name] + parameter.grad if name in total else parameter.grad.clone()

    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter, name=name: add(name, parameter))
    return total


def write_gradient(arguments: argparse.Namespace, gradient: dict[str, Tensor], norm: float) -> None:
    """Write it, having seen that it is what the optimizer got."""
    collected = float(torch.linalg.vector_norm(torch.stack([g.double().norm() for g in gradient.values()])))
    assert abs(collected - norm) < 1e-3 * norm, f"collected a gradient of norm {collected}, the optimizer {norm}"
    save_file(gradient, arguments.gradient)


if __name__ == "__main__":
    main()
