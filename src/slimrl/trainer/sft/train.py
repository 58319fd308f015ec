"""The supervised training loop raises the probability of the assistant's tokens in given conversations.

The loss is the mean negative log-likelihood over the assistant tokens of the batch. Each conversation is a `Sample`,
and its mask marks the assistant tokens. So packing, log-probabilities and the optimizer are shared with RL.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slimrl.config.run import SFTConfig
from slimrl.models.allocator import return_freed_memory
from slimrl.monitor.sinks import Monitor
from slimrl.trainer.fsdp import reshard
from slimrl.trainer.logprobs import target_logprobs
from slimrl.trainer.optim import schedule_factor
from slimrl.trainer.state import TrainState, save_if_due, save_missing_weights
from slimrl.types import Metrics, Sample


@dataclass(frozen=True, slots=True)
class Conversations:
    """The training data, as a function from a step to its samples, and the validation samples."""

    of_step: Callable[[int], Sequence[Sample]]
    validation: Sequence[Sample]


def train(state: TrainState, config: SFTConfig, conversations: Conversations, monitor: Monitor) -> None:
    """Train from the state's step to `max_steps`. Validate before the first step, every `val_interval_steps` steps, and
    after the last step.

    A validation loss that is logged as step n belongs to the weights after n training steps.
    """
    if config.activation_checkpointing:
        return_freed_memory()  # otherwise the process would keep the memory that each layer frees
    output_dir = Path(config.output_dir)
    save_missing_weights(state, output_dir)
    for step in range(state.progress.step, config.max_steps):
        metrics: Metrics = {}
        if step == 0 or (config.val_interval_steps and step % config.val_interval_steps == 0):
            metrics["sft/val_loss"] = validate(state, config, conversations.validation)

        began = time.perf_counter()
        metrics |= backward(state, config, conversations.of_step(step))
        metrics |= state.optimizer.step(schedule_factor(step, config.max_steps, config.schedule))
        seconds = time.perf_counter() - began

        metrics |= {"time/step_s": seconds, "perf/tokens_trained_per_s": metrics["sft/tokens"] / seconds}
        monitor.log(step, metrics)
        state.advance(seconds)
        save_if_due(state, output_dir, config.max_steps, config.ckpt)
    monitor.log(config.max_steps, {"sft/val_loss": validate(state, config, conversations.validation)})


def backward(state: TrainState, config: SFTConfig, samples: Sequence[Sample]) -> Metrics:
    """Accumulate the gradient of the mean loss over all assistant tokens. Return the loss and the number of tokens as
    metrics."""
    num_tokens = sum(sum(sample.loss_mask_T) for sample in samples)
    total = torch.zeros((), device=state.policy.device, dtype=torch.float64)
    for pack in state.ranks.packs(samples, config.micro_batch_tokens, state.policy.device):
        logprob_N, *_ = target_logprobs(state.policy.module, pack, 1.0, config.activation_checkpointing)
        loss = -logprob_N.sum()
        (loss / num_tokens).backward()  # `num_tokens` is of the whole batch, so packing does not change the gradient
        total += loss.detach()
    (summed,) = state.ranks.sums([float(total)])
    return {"sft/loss": summed / num_tokens, "sft/tokens": float(num_tokens)}


@torch.no_grad()  # not inference mode: a sharded module could not train with tensors made in it
def validate(state: TrainState, config: SFTConfig, samples: Sequence[Sample]) -> float:
    """Return the mean negative log-likelihood of the assistant tokens, in nats per token, without a gradient."""
    packs = state.ranks.packs(samples, config.micro_batch_tokens, state.policy.device)
    sums = [-target_logprobs(state.policy.module, pack, temperature=1.0)[0].sum().double() for pack in packs]
    reshard(state.policy.module)
    total, number = state.ranks.sums([float(sum(sums)), float(sum(len(pack.target_N) for pack in packs))])
    return total / number
