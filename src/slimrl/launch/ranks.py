"""Processes that `torchrun` started together: which of them this is, and what they must agree on before they begin.

    uv run torchrun --nproc-per-node 2 -m slimrl trainer @ configs/debug/rl/train.toml

They are on one machine and compute on its CPU.
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
def joined(environment: Mapping[str, str]) -> Iterator[Ranks]:
    """This process among those that share its work, by the variables that torchrun sets; alone without them."""
    num = int(environment.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in environment else 1
    if num == 1:
        yield ALONE
        return
    distributed.init_process_group("gloo")
    try:
        yield Ranks(distributed.get_rank(), num)
    finally:
        distributed.destroy_process_group()


def by_the_first(ranks: Ranks, action: Callable[[], object]) -> None:
    """Have one process do what is done once, while the others wait. Raises UserError in all of them if it did there."""
    try:
        if ranks.leads:
            action()
    except UserError:
        ranks.sums([1.0])
        raise
    (failed,) = ranks.sums([0.0])
    if failed:
        raise UserError("the first of the processes could not begin, and says why.")


def agreed(model: ModelConfig, ranks: Ranks) -> ModelConfig:
    """The settings with one number format for all processes: each would measure for itself, and not find the same.

    Raises UserError where the model would not be on the CPU.
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
