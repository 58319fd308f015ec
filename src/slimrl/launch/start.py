"""Starts a command with settings: reads and checks them, prints them on request, and calls the command.

Modules are imported by name when they are needed, so that `--help` and errors in settings do not wait for PyTorch. The
early checks refuse an unusable directory, a missing extra, a missing GPU, an invalid model name, and an unreadable data
file. The code that uses these things later repeats the checks.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from slimrl.config.base import CommandConfig
from slimrl.config.check import TemplateConfig
from slimrl.config.data import FileDataConfig
from slimrl.config.loss import OWN
from slimrl.config.model import ModelConfig
from slimrl.config.reading.flags import names_section
from slimrl.config.reading.help import show_settings
from slimrl.config.reading.load import C, Resolved
from slimrl.config.reading.load import load as load_settings
from slimrl.config.reading.saved import config_toml
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig, TrainingRunConfig
from slimrl.config.teacher import ModelTeacherConfig
from slimrl.environments.find import environment_names
from slimrl.errors import UserError, install_hint
from slimrl.io.invocation import HELP, num_ranks, show
from slimrl.io.rows import file_rows
from slimrl.io.user_code import load_function
from slimrl.launch.open_dir import refuse_unusable, with_pinned_model
from slimrl.launch.tasksets import args_in, check_environments, origin_of
from slimrl.models.names import kind_of
from slimrl.plugins import DEPLOYMENTS, Command, call, imported, load

DRY_RUN = {"--dry-run", "--dry_run"}
GPU_DEVICES = ("dev/nvidia[0-9]*", "dev/kfd", "dev/dxg")  # for NVIDIA, for AMD, and for Linux inside Windows
Need = tuple[str, str, str]  # a module, the extra that installs it, and its purpose


def start_command(name: str, command: Command, argv: Sequence[str]) -> int:
    """Start the command `name`, or the part of an `rl` run with this name. `argv` are the words after `name` on the
    command line. Returns the exit status."""
    if command.is_part and (not command.settings or names_section(argv, "orchestrator")):
        # A part shares the directory with other parts, and the process that started the part has checked the directory.
        part = load(DEPLOYMENTS, "processes", "the deployment").parts[name]
        return run_command(RLConfig, argv, partial(call, part), name=name, role="part")
    config_class: type[CommandConfig] = imported(command.settings)
    words = [word for word in argv if word not in command.switches]
    more = [{*argv} & {*command.switches}] if command.switches else []
    if config_class.operand:
        words = _with_operand(name, config_class.operand, words)
    return run_command(config_class, words, lambda resolved: call(command.run, resolved, *more), name=name, role="run")


def _with_operand(name: str, key: str, words: list[str]) -> list[str]:
    if not words:
        known = ", ".join(environment_names())
        raise UserError(f"{name} needs an environment, as in `slimrl {name} reverse-text`. Known: {known}.")
    return words if words[0].startswith(("-", "@")) else [f"--{key}", *words]


def run_command(
    config_class: type[C],
    argv: Sequence[str],
    start: Callable[[Resolved[C]], int],
    environ: Mapping[str, str] = os.environ,
    name: str = "",
    role: Literal["", "run", "part"] = "",
) -> int:
    """Print the help or the resolved settings if `argv` has a flag for them; otherwise call `start`. Returns the exit
    status. Raises UserError for wrong settings, and in the role `run` also for a missing package, directory or device.
    In the role `part` environments are not checked, because only the part that plays episodes makes them."""
    if HELP & {*argv}:
        return show_settings(config_class, argv)
    is_dry = bool(DRY_RUN & set(argv))
    resolved = load_settings(config_class, [word for word in argv if word not in DRY_RUN], environ)
    if role == "run" and not is_dry:
        refuse_early(resolved.config)
    check_model_names(resolved.config)
    check_data_files(resolved.config)
    # Check this before the run's directory is made and its settings are written.
    if role != "part" or is_dry:
        check_environments(resolved.config, make=is_dry, provenance=resolved.provenance)
        _check_own_loss(resolved.config, resolved.provenance)
    if is_dry:
        return show(config_toml(resolved))
    _check_ranks(name or config_class.command)
    return start(with_pinned_model(resolved))


def _check_own_loss(config: CommandConfig, provenance: Mapping[str, str]) -> None:
    if not isinstance(config, RLConfig | TrainerOnlyConfig):
        return
    loss = vars(config.trainer.loss)
    for part, num_values in OWN.items():
        try:
            if ":" in loss[part]:
                load_function(loss[part], part, loss[f"{part}_args"], num_values)
        except UserError as error:
            keys = [f"trainer.loss.{part}{name}" for name in (*(f"_{one}" for one in args_in(error)), "")]
            raise UserError(f"{origin_of(keys, provenance)}{error}") from error


def _check_ranks(command: str) -> None:
    """Raise UserError if torchrun started a command whose processes cannot share the work. Otherwise each process would
    do all the work and write to the same directory."""
    num = num_ranks(os.environ)
    if num > 1 and command not in ("trainer", "sft"):
        raise UserError(
            f"torchrun started {num} processes, and `{command}` is one process in this version: only `trainer` and "
            f"`sft` can share their work. Start it as `slimrl {command} ...`."
        )


def refuse_early(config: CommandConfig) -> None:
    """Raise UserError for settings that cannot work on this machine, or a directory that cannot be used now."""
    is_placed = isinstance(config, RLConfig) and config.deployment.type == "ray"  # the parts run on other nodes
    if isinstance(config, RLConfig | SFTConfig) and num_ranks(os.environ) == 1:
        refuse_unusable(Path(config.output_dir), config.resume, is_placed)
    for module, extra, purpose in _needs(config):
        if find_spec(module) is None:
            raise UserError(f"{purpose} needs the extra [{extra}] (no module `{module}`): {install_hint(extra)}.")
    if isinstance(config, RLConfig) and config.deployment.are_apart:
        load(DEPLOYMENTS, config.deployment.type, "the deployment")  # fails if it is not installed
    model = getattr(config, "model", None)
    if isinstance(model, ModelConfig) and not is_placed:
        _check_device(model.device)


def check_model_names(config: CommandConfig) -> None:
    """Raise UserError if a model's name is neither a packaged model, nor a file or directory, nor a valid Hub id."""
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


def _needs(config: CommandConfig) -> Iterator[Need]:
    model = getattr(config, "model", None)
    if isinstance(model, ModelConfig) and model.lora.rank > 0:
        yield "peft", "lora", "`model.lora`"
    if isinstance(config, TrainingRunConfig) and config.wandb.is_on and os.environ.get("WANDB_MODE") != "disabled":
        yield "wandb", "wandb", "Weights & Biases"
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
