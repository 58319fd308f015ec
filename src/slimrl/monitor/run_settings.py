"""Reads the settings in a run's directory, without PyTorch."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load_file
from slimrl.config.reading.names import current_path
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, nearest
from slimrl.io.regular_file import read_regular
from slimrl.io.run_dir import RunDir

MAX_BYTES = 2**20
HEADER = re.compile(r"# slimrl (\w+) @")
# Settings that are not part of the recipe: they name paths, programs or machines, monitor a run, or distinguish runs.
NO_RECIPE = re.compile(
    r"(seed|output_dir|resume|command|plan|(wandb|trackio|tensorboard|ckpt|deployment|monitors|trainer\.guard)\..*"
    r"|.*_gpu_ids|model\.(device|num_threads)|orchestrator\.(max_rollouts_gb|env\.\d+\.name)"
    r"|inference\.(base_url|api_key_variable|vllm_program|port|timeout_s|max_slots))"
)


def read_run_config(run_dir: Path, default: type[CommandConfig] | None = None) -> CommandConfig:
    """Return the settings of a run. Settings that its version of slimrl did not have get today's defaults. `default` is
    the class of the settings if the first line of config.toml names no command. Raise UserError if the file is missing
    or cannot be read."""
    path = RunDir(run_dir).settings
    if not path.is_file():
        raise UserError(f"{run_dir} has no {path.name}: it is no run of slimrl. Name the `output_dir` of a run.")
    command = _command_in(read_regular(path, MAX_BYTES).decode("utf-8", "replace"))
    if (kind := COMMANDS.get(command, default)) is None:
        raise UserError(
            f"{path} does not begin with the command that wrote it, as in `# slimrl rl @ {path.name}`."
            f"{nearest(command, COMMANDS) if command else ''}"
        )
    return load_file(kind, path)


def read_flat_settings(run_dir: Path, command: str) -> dict[str, Any]:
    """Return the settings in a run's file by dotted key, without defaults. Renamed settings have their new names. Raise
    UserError if the file cannot be read, or belongs to another command."""
    path = RunDir(run_dir).settings
    text = read_regular(path, MAX_BYTES).decode("utf-8", "replace")
    if (kept := _command_in(text) or command) != command:
        raise UserError(
            f"{run_dir} holds a run of `{kept}`, not of `{command}`. Give `--output_dir` another directory."
        )
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: {error}. Restore the file, or remove it to resume without a comparison.") from None
    return {".".join(current_path(command, tuple(key.split(".")))): value for key, value in flatten(tree)}


def _command_in(text: str) -> str:
    """Return the command that the first line of a config.toml names; empty if it names none."""
    found = HEADER.match(text)
    return found[1] if found else ""


def flat_settings(config: CommandConfig) -> dict[str, Any]:
    """Return the settings by dotted key, such as `trainer.optim.lr` and `orchestrator.env.0.id`."""
    return dict(flatten(config.model_dump(mode="json")))


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a pair of dotted key and value for each setting in a tree. In a list of tables, the index is a part of the
    key."""
    match value:
        case Mapping() if value or not key:
            for name, item in value.items():
                yield from flatten(item, f"{key}.{name}" if key else str(name))
        case list() if any(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flatten(item, f"{key}.{number}")
        case _:
            yield key, value
