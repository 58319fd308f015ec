"""Connects the processes that share the work of one trainer. The processes join a group, the first process opens the
run's directory, and all agree on a dtype before the first training step.

    uv run torchrun --nproc-per-node 2 -m slimrl trainer @ configs/debug/rl/train.toml

torchrun starts the processes on one machine, Ray on one or several. Each process computes on a CPU or on its own GPU.
"""

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed

from slimrl.config.model import ModelConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import TrainingRunConfig
from slimrl.errors import UserError
from slimrl.io.invocation import num_ranks
from slimrl.launch.open_dir import open_training_dir
from slimrl.launch.parts import restore_measured
from slimrl.models.allocator import return_freed_memory
from slimrl.models.device import choose_device, choose_dtype, dtype_name, set_threads
from slimrl.monitor.console import RunConsole
from slimrl.trainer.parallel import ALONE, Ranks

C = TypeVar("C", bound=TrainingRunConfig)
# Time limit of a wait for another process. The longest wait is for the first process while it writes to a disk.
TIMEOUT = timedelta(minutes=10)


def console_of_rank() -> RunConsole:
    """Return a console that prints only in the first process of torchrun."""
    follows = num_ranks(os.environ) > 1 and os.environ["RANK"] != "0"
    return RunConsole(io.StringIO()) if follows else RunConsole()


@contextmanager
def open_shared_run(
    resolved: Resolved[C], model: ModelConfig, console: RunConsole, gpus: Sequence[int] = ()
) -> Iterator[tuple[Ranks, ModelConfig]]:
    """Context manager: join the processes of a run and open its directory; see `open_training_dir` and `join_ranks`.
    Yields the ranks, and the model's settings with this process's device and the dtype."""
    config, output_dir = resolved.config, Path(resolved.config.output_dir)
    directory = open_training_dir(resolved, output_dir, config.resume, console.note)
    with ExitStack() as held:
        ranks, own = held.enter_context(join_ranks(os.environ, model, gpus))
        run_on_first(ranks, lambda: held.enter_context(directory))  # the other processes wait
        yield ranks, agree_on_dtype(restore_measured(own, output_dir, config.resume), ranks)


@contextmanager
def join_ranks(
    environment: Mapping[str, str], model: ModelConfig, gpus: Sequence[int] = ()
) -> Iterator[tuple[Ranks, ModelConfig]]:
    """Context manager: join the group of processes that torchrun's variables in `environment` describe. Without these
    variables, the group has only this process. Yields the ranks, and the model's settings with the device of this
    process. If `gpus` is not empty, this device is one of `gpus`.

    Raises UserError if another process dies, or does not respond for `TIMEOUT`.
    """
    num = num_ranks(environment)
    if num == 1:
        yield ALONE, model
        return
    return_freed_memory()  # the model is not loaded yet
    device = own_device(model, int(environment["LOCAL_RANK"]), int(environment.get("LOCAL_WORLD_SIZE", num)), gpus)
    # Only tensors of the model are exchanged between GPUs. All other data is exchanged on the CPU.
    distributed.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl", timeout=TIMEOUT)
    ranks = Ranks(distributed.get_rank(), num)
    try:
        with _explain_lost_rank(ranks):
            yield ranks, model.model_copy(update={"device": str(device)})
    finally:
        distributed.destroy_process_group()


def own_device(model: ModelConfig, local_rank: int, num: int, gpus: Sequence[int] = ()) -> torch.device:
    """Return the device of the process `local_rank`, one of `num` processes on this machine. It is the CPU or
    `gpus[local_rank]`. If `gpus` is empty, it is the CPU or the GPU `local_rank`.

    Raises UserError if there are fewer GPUs than processes.
    """
    device = choose_device(model.device)
    if device.type == "cpu":
        return device
    if gpus and num > len(gpus):
        raise UserError(f"torchrun started {num} processes, and trainer_gpu_ids = {[*gpus]}: start {len(gpus)}.")
    available = torch.cuda.device_count() if gpus or model.device in ("auto", "cuda") else 1
    if num > available:
        raise UserError(
            f"torchrun started {num} processes, and each needs a GPU of its own: model.device = {model.device} is "
            f"{available}. Start fewer, or give `--model.device cuda` for all GPUs or `--model.device cpu`."
        )
    own = torch.device("cuda", gpus[local_rank] if gpus else local_rank)
    torch.cuda.set_device(own)
    return own


def run_on_first(ranks: Ranks, action: Callable[[], object]) -> None:
    """Run an action in the first process, while the others wait. If the action raises UserError, all processes raise
    the same error."""
    with ranks.united():
        if ranks.leads:
            action()


def agree_on_dtype(model: ModelConfig, ranks: Ranks) -> ModelConfig:
    """Return the model's settings with one dtype for all processes. For `auto`, the first process measures the speeds
    and chooses for all, because the measurements of several processes may differ."""
    if ranks.num == 1 or model.dtype != "auto":
        return model
    set_threads(model.num_threads)
    found = dtype_name(choose_dtype(choose_device(model.device)).dtype) if ranks.leads else ""
    return model.model_copy(update={"dtype": ranks.of_first(found)})


@contextmanager
def _explain_lost_rank(ranks: Ranks) -> Iterator[None]:
    """Context manager: convert a communication error to a UserError. torchrun names the process that died."""
    try:
        yield
    except RuntimeError as error:  # gloo has no error class of its own
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        raise UserError(
            f"another of the {ranks.num} ranks has ended or is stopped, or does not answer for {TIMEOUT}: see above "
            "for why, or with `dmesg` whether it was killed for memory. Start all of them again, with `--resume`. "
            f"({error})"
        ) from error
