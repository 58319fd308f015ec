"""Processes that `torchrun` started together: how they find one another, and what they agree on before they begin.

    uv run torchrun --nproc-per-node 2 -m slimrl trainer @ configs/debug/rl/train.toml

All of them are on one machine and compute on its CPU.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import distributed

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.models.device import choose_device, choose_dtype, set_threads
from slimrl.trainer.parallel import ALONE, Ranks


@contextmanager
def join_ranks(environment: Mapping[str, str]) -> Iterator[Ranks]:
    """Join the processes that share this one's work, by the variables that torchrun sets. Without these variables the
    process is alone."""
    # WORLD_SIZE alone is not enough: schedulers set it, too, for processes that have nothing to do with one another.
    num = int(environment.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in environment else 1
    if num == 1:
        yield ALONE
        return
    distributed.init_process_group("gloo")
    try:
        yield Ranks(distributed.get_rank(), num)
    finally:
        distributed.destroy_process_group()


def run_on_first(ranks: Ranks, action: Callable[[], object]) -> None:
    """Run an action in the first process, while the others wait. If it raises UserError there, all processes raise."""
    try:
        if ranks.leads:
            action()
    except UserError:
        ranks.sums([1.0])  # the others wait for this sum, which tells them of the failure
        raise
    (failed,) = ranks.sums([0.0])
    if failed:
        raise UserError("the first of the processes could not begin, and says why.")


def agree_on_dtype(model: ModelConfig, ranks: Ranks) -> ModelConfig:
    """The model's settings with one dtype for all processes. With `auto` each would measure for itself, and they might
    choose differently, so the first process's choice counts.

    Raises UserError if the model would not be on the CPU.
    """
    if ranks.num == 1:
        return model
    device = choose_device(model.device)
    if device.type != "cpu":
        raise UserError(
            f"{ranks.num} processes were started, and model.device = {model.device} is {device} here. Several of them "
            "train on the CPU only, in this version: add `--model.device cpu`, or start one without torchrun."
        )
    if model.dtype != "auto":
        return model
    set_threads(model.num_threads)
    rounded = ranks.leads and choose_dtype(device).dtype == torch.bfloat16
    (found,) = ranks.sums([float(rounded)])
    return model.model_copy(update={"dtype": "bfloat16" if found else "float32"})
