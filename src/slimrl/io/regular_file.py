"""Reads files that others name: regular ones only, because a pipe or a device could wait, or never end, and no more of
them than is sensible."""

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

from slimrl.errors import UserError

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path, hint: str = "") -> io.FileIO:
    """The open file, unbuffered. Raises UserError, which ends in the hint, unless it is a regular one, or a link to
    such a one."""
    try:
        # Otherwise opening a pipe would wait for somebody to write into it.
        file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    except (OSError, ValueError) as error:  # a path may have a NUL in it
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.{hint}") from None
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        kind = KINDS.get(stat.S_IFMT(mode), "no file")
        raise UserError(f"{path} cannot be read: it is {kind}, not a regular file.{hint}")
    return file


def read_json(path: Path, most_bytes: int) -> Any:
    """The JSON in a file. Raises UserError if it cannot be read, is larger than `most_bytes`, or is no JSON."""
    return parse_json(read_regular(path, most_bytes), str(path))


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a file. Raises UserError if it cannot be read, or is larger than `most_bytes`."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            raise UserError(f"{path} is larger than the {most_bytes // 2**10} KiB that such a file may have.")
        return file.readall()


def parse_json(content: bytes, where: str) -> Any:
    """The value that JSON text spells. Raises UserError, in which `where` names its place, if it is none."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise UserError(f"{where} is JSON that is nested too deep.") from None
    except ValueError as error:
        raise UserError(f"{where} is no JSON: {error}.") from None
