"""Checks before PyTorch is imported. They refuse a directory that cannot be used, a missing extra, a missing GPU, a
name that no model can have, and a data file that cannot be read. The code that uses these things checks them again."""

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from slimrl.config.base import CommandConfig
from slimrl.config.check import TemplateConfig
from slimrl.config.data import FileDataConfig
from slimrl.config.model import ModelConfig
from slimrl.config.run import RLConfig, SFTConfig, TrainingRunConfig
from slimrl.config.teacher import ModelTeacherConfig
from slimrl.errors import UserError, install_hint
from slimrl.io.rows import file_rows
from slimrl.launch.run_lock import refuse_in_use, refuse_run, refuse_unwritable
from slimrl.models.names import kind_of

GPU_DEVICES = ("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg")  # for NVIDIA, for AMD, and for Linux inside Windows
Need = tuple[str, str, str]  # a module, the extra that installs it, and its purpose


def refuse_early(config: CommandConfig) -> None:
    """Raise UserError for settings that cannot work on this machine, or a directory that cannot be used now."""
    is_placed = isinstance(config, RLConfig) and config.deployment.type == "ray"  # the parts run on other nodes
    if isinstance(config, RLConfig | SFTConfig) and not _is_rank():
        if not is_placed:  # on a cluster, a lock may outlive its holder
            refuse_in_use(Path(config.output_dir))
            refuse_unwritable(Path(config.output_dir))
        if not config.resume:
            refuse_run(Path(config.output_dir))
    for module, extra, purpose in _needs(config):
        if find_spec(module) is None:
            raise UserError(f"{purpose} needs the extra [{extra}] (no module `{module}`): {install_hint(extra)}.")
    model = getattr(config, "model", None)
    if isinstance(model, ModelConfig) and not is_placed:
        _check_device(model.device)


def check_model_names(config: CommandConfig) -> None:
    """Raise UserError if a name is neither a packaged model, nor a file or directory, nor a possible id of the Hub."""
    model = vars(config).get("model")
    if isinstance(model, ModelConfig | TemplateConfig) and model.name:
        kind_of(model.name)
    if isinstance(config, RLConfig) and isinstance(config.teacher, ModelTeacherConfig) and config.teacher.name:
        kind_of(config.teacher.name, "teacher.name")


def check_data_files(config: CommandConfig) -> None:
    """Raise UserError if the first row of a training or validation file cannot be read."""
    if isinstance(config, SFTConfig) and isinstance(config.data, FileDataConfig):
        for key in ("path", "val_path"):
            if file := vars(config.data)[key]:
                next(file_rows(Path(file), f"`data.{key}`"), None)


def _is_rank() -> bool:
    """Return True if this process is one of several that share a run's directory."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def _needs(config: CommandConfig) -> Iterator[Need]:
    model = getattr(config, "model", None)
    if isinstance(model, ModelConfig) and model.lora.rank > 0:
        yield "peft", "lora", "`model.lora`"
    if isinstance(config, TrainingRunConfig):
        if config.wandb.is_on and os.environ.get("WANDB_MODE") != "disabled":
            yield "wandb", "wandb", "Weights & Biases"
        if config.trackio.is_on:
            yield "trackio", "trackio", "Trackio"
        if config.tensorboard.enabled:
            yield "tensorboard", "tensorboard", "TensorBoard"
    if isinstance(config, RLConfig):
        if config.deployment.type in ("processes", "ray"):
            yield "uvicorn", "server", f"`deployment.type = {config.deployment.type}`"
        if config.deployment.type == "ray":
            yield "ray", "ray", "`deployment.type = ray`"


def _check_device(name: str) -> None:
    if name.startswith("cuda") and sys.platform == "linux":
        if not any(next(Path("/").glob(pattern), None) for pattern in GPU_DEVICES):
            raise UserError(
                f"model.device is `{name}`, and no driver shows a GPU on this machine (/dev/nvidia*). Use "
                "`--model.device cpu`, or install the driver and a PyTorch built for CUDA."
            )
