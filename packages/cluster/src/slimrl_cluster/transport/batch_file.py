"""Writes and reads batches as files, one JSON file per training step. Numbers keep all their bits."""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from slimrl.config.base import describe_faults
from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.transport.base import Batch

FORMAT = TypeAdapter(Batch)


def write_batch(batch: Batch, path: Path) -> None:
    """Write a batch to a file. The file appears complete or not at all. Raises UserError if it cannot be written."""
    replace_file(path, [to_json(batch, inf_nan_mode="constants")])


def read_batch(path: Path) -> Batch:
    """Read the batch in a file. Raises UserError if it is malformed."""
    try:
        return FORMAT.validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path} is no batch: {describe_faults(error):.300}.") from None
