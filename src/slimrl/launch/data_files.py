"""Checks a command's data files before a model is loaded. Needs no PyTorch, for `--dry-run`."""

from pathlib import Path

from slimrl.config.base import CommandConfig
from slimrl.config.data import FileDataConfig
from slimrl.config.run import SFTConfig
from slimrl.io.rows import file_rows


def check_data_files(config: CommandConfig) -> None:
    """Raise UserError if the first row of a training or validation file cannot be read."""
    if isinstance(config, SFTConfig) and isinstance(config.data, FileDataConfig):
        for key in ("path", "val_path"):
            if file := vars(config.data)[key]:
                next(file_rows(Path(file), f"`data.{key}`"), None)
