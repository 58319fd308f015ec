"""Checks the files of data that a command names before a model is loaded. Needs no PyTorch, for `--dry-run`."""

from pathlib import Path

from slimrl.config.base import CommandConfig
from slimrl.config.data import FileDataConfig
from slimrl.config.run import SFTConfig
from slimrl.io.rows import file_rows


def check_data_files(config: CommandConfig) -> None:
    """Raises UserError if a file to train or validate on cannot be read as far as its first row."""
    match config:
        case SFTConfig(data=FileDataConfig(path=path, val_path=val_path)):
            for key, file in (("data.path", path), ("data.val_path", val_path)):
                if file:
                    next(file_rows(Path(file), f"`{key}`"), None)
        case _:
            pass
