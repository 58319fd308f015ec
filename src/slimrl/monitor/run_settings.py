"""The module reads the settings that a run's directory keeps. Knows no PyTorch."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load_file
from slimrl.config.reading.write import FILE_NAME
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError, nearest
from slimrl.io.regular_file import read_regular

MAX_BYTES = 2**20
HEADER = re.compile(r"# slimrl (\w+) @")
# Settings that are no part of a recipe: they name places, programs or machines, watch a run, or tell one from another.
NO_RECIPE = re.compile(
    r"(seed|output_dir|resume|command|plan|(wandb|trackio|tensorboard|ckpt|deployment|monitors|trainer\.guard)\..*"
    r"|.*_gpu_ids|model\.(device|num_threads)|orchestrator\.(max_rollouts_gb|env\.\d+\.name)"
    r"|inference\.(base_url|api_key_variable|vllm_program|port|timeout_s|max_slots))"
)


def read_run_config(run_dir: Path, default: type[CommandConfig] | None = None) -> CommandConfig:
    """The settings of a run, with today's defaults for those that its version did not know. `default` is the kind of
    settings where the first line of its config.toml names none. Raises UserError if the file is missing or cannot be
    read."""
    path = run_dir / FILE_NAME
    if not path.is_file():
        raise UserError(f"{run_dir} has no {FILE_NAME}: it is no run of slimrl. Name the `output_dir` of a run.")
    first = read_regular(path, MAX_BYTES).decode("utf-8", "replace").partition("\n")[0]
    found = HEADER.match(first)
    command = found[1] if found else ""
    if (kind := COMMANDS.get(command, default)) is None:
        raise UserError(
            f"{path} does not begin with the command that wrote it, as in `# slimrl rl @ {FILE_NAME}`."
            f"{nearest(command, COMMANDS) if command else ''}"
        )
    return load_file(kind, path)


def flat_settings(config: CommandConfig) -> dict[str, Any]:
    """The settings by dotted key, such as `trainer.optim.lr` and `orchestrator.env.0.id`."""
    return dict(flatten(config.model_dump(mode="json")))


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """A tree of settings as pairs of a dotted key and a plain value; the sections of a list go by their numbers."""
    match value:
        case Mapping() if value or not key:
            for name, item in value.items():
                yield from flatten(item, f"{key}.{name}" if key else str(name))
        case list() if any(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                yield from flatten(item, f"{key}.{number}")
        case _:
            yield key, value
