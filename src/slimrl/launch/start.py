"""Starts a command with settings: reads and checks them, prints them on request, and calls the command.

Modules are imported by name when they are needed, so that `--help` and errors in settings do not wait for PyTorch.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from slimrl.config.base import CommandConfig
from slimrl.config.loss import OWN
from slimrl.config.reading.flags import names_section
from slimrl.config.reading.load import C, Resolved, load
from slimrl.config.reading.write import config_toml
from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.environments.find import environment_names
from slimrl.errors import UserError
from slimrl.io.invocation import HELP, show
from slimrl.io.user_code import load_function
from slimrl.launch.early import check_data_files, check_model_names, refuse_early
from slimrl.launch.extensions import part_of
from slimrl.launch.help_page import settings_of, show_settings
from slimrl.launch.tasksets import args_in, check_environments, origin_of
from slimrl.plugins import Command, call

DRY_RUN = {"--dry-run", "--dry_run"}


def start_command(name: str, command: Command, argv: Sequence[str]) -> int:
    """Start the command `name`, or the part of an `rl` run with this name. `argv` are the words after it on the command
    line. Returns the exit status."""
    if command.is_part and (not command.settings or names_section(argv, "orchestrator")):
        # A part shares the directory with other parts. The process that starts the part has checked the directory.
        return run_command(RLConfig, argv, part_of(name), name=name, role="part")
    config_class = settings_of(command)
    words = [word for word in argv if word not in command.switches]
    more = [{*argv} & {*command.switches}] if command.switches else []
    if config_class.operand:
        words = _with_operand(name, config_class.operand, words)
    return run_command(config_class, words, lambda resolved: call(command.run, resolved, *more), name=name, role="run")


def _with_operand(name: str, key: str, words: list[str]) -> list[str]:
    """Turn a first word that is not a flag into the setting `key`. Raises UserError if there are no words."""
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
    """Print the help or the resolved configuration if `argv` asks for it; otherwise call `start`. Returns the exit
    status. Raises UserError for wrong settings, and in the role `run` also for a missing package, directory or device.
    In the role `part` environments are not checked, because the part that plays episodes makes its own."""
    if HELP & {*argv}:
        return show_settings(config_class, argv)
    is_dry = bool(DRY_RUN & set(argv))
    resolved = load(config_class, [word for word in argv if word not in DRY_RUN], environ)
    if role == "run" and not is_dry:
        refuse_early(resolved.config)
    check_model_names(resolved.config)
    check_data_files(resolved.config)
    # Check this before the run's directory is made and its settings are written.
    if role != "part" or is_dry:
        check_environments(resolved.config, make=is_dry, provenance=resolved.provenance)
        _check_own_loss(resolved.config, resolved.provenance)
    if is_dry:
        return show(_dry_run(resolved))
    _check_ranks(name or config_class.command)
    return start(resolved)


def _check_own_loss(config: CommandConfig, provenance: Mapping[str, str]) -> None:
    """Raise UserError, prefixed with the origin of the setting, if a user's own part of the loss cannot be loaded."""
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


def _dry_run(resolved: Resolved[Any]) -> str:
    """Return the settings as text, and for `sft` the first rows of its data."""
    text = config_toml(resolved)
    if isinstance(resolved.config, SFTConfig):
        text += call("slimrl.launch.masked_rows:show_rows", resolved.config)  # imports PyTorch
    return text


def _check_ranks(command: str) -> None:
    """Raise UserError if torchrun started a command whose processes cannot share the work. Each process would do all
    the work, and write to the same directory."""
    num = os.environ.get("WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
    if num != "1" and command not in ("trainer", "sft"):
        raise UserError(
            f"torchrun started {num} processes, and `{command}` is one process in this version: only `trainer` and "
            f"`sft` can share their work. Start it as `slimrl {command} ...`."
        )
