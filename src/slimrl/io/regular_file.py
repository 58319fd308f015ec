"""Reads files at paths that users or other programs choose, up to a size limit. Only regular files are read, because a
pipe or a device could block for ever."""

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

from slimrl.errors import UserError


def open_regular(path: Path, hint: str = "") -> io.FileIO:
    """Open a file, unbuffered. Raise UserError, with `hint` at its end, unless the path is a regular file or a link to
    a regular file."""
    try:
        # Do not block: without this flag, opening a pipe would wait for a writer.
        file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    except (OSError, ValueError) as error:  # a path may have a NUL in it
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.{hint}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UserError(f"{path} cannot be read: it is not a regular file.{hint}")
    return file


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file. Raise UserError if it cannot be read, or is larger than `most_bytes`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise UserError(f"{path} is larger than the {most_bytes // 2**10} KiB that such a file may have.")
        return file.readall()


def read_json(path: Path, most_bytes: int) -> Any:
    """Return the JSON in a file. Raise UserError if it cannot be read, is larger than `most_bytes`, or is not JSON."""
    try:
        return json.loads(read_regular(path, most_bytes).decode())
    except RecursionError:
        raise UserError(f"{path} is JSON that is nested too deep.") from None
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}.") from None
