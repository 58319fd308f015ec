"""Files of JSON lines, and files that are replaced in one step. Knows nothing of what the lines mean.

A line reaches the operating system before `append` returns, so `kill -9` loses at most the line that is being written;
an incomplete last line is left out when a file is read. Errors of the disk become `UserError`s in plain words.
"""

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from slimrl.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)
NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)  # a part of the path is a file


@contextmanager
def explain_write_errors(path: Path, chosen_by: str = "--output_dir") -> Iterator[None]:
    """Turns an `OSError` from creating or writing `path` into a `UserError` that says what to do. `chosen_by` names the
    argument of the command that determines the path."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"The disk is full: {path} could not be written ({error.strerror}). Free some space there, then run "
                "the same command again; what has checkpoints goes on from the last with --resume."
            ) from error
        mend = "A part of its path is a file: c" if error.errno in NO_FOLDER else "Make it writable, or c"
        raise UserError(
            f"{path} could not be written: {error.strerror or error}. {mend}hoose another {chosen_by}."
        ) from error


def without_nan(value: Any) -> Any:
    """The value with None for nan and the infinities, which JSON lacks; also inside dictionaries, lists and tuples."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: without_nan(item) for key, item in value.items()}
        case list() | tuple():
            return [without_nan(item) for item in value]
    return value


class LineFile:
    """A file that is open for appending JSON lines.

    It is unbuffered: what a full disk refuses raises at once, and not once more when the file is closed.
    """

    def __init__(self, path: Path, keep: bool = False) -> None:
        """Opens `path` and creates its folders; empties it unless `keep`. Raises UserError if that cannot be done."""
        self.path = path
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab" if keep else "wb", buffering=0)

    def append(self, record: dict[str, Any]) -> None:
        """Writes one JSON object as one line. Raises UserError on a full disk, ValueError on a non-finite number."""
        left = encode_line(record)
        with explain_write_errors(self.path):
            while left:  # a nearly full disk accepts part of a line without an error; writing the rest raises it
                left = left[self._file.write(left) :]

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        with explain_write_errors(self.path):
            self._file.close()


def encode_line(record: dict[str, Any]) -> bytes:
    """One JSON object and a newline, in readable UTF-8. Lone surrogates, which UTF-8 lacks, become JSON escapes."""
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "backslashreplace")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines, without an incomplete last one.

    Raises UserError when the file cannot be read or when a line that is not the last is no JSON object.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UserError(f"{path} could not be read: {error.strerror}.") from error
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            torn = not isinstance(record, dict)
        except ValueError:
            torn = True
        if not torn:
            records.append(record)
        elif number < len(lines):
            raise UserError(f"{path}:{number} is not a JSON object. Mend or delete that line.")
    return records


def replace_file(path: Path, chunks: Iterable[bytes], chosen_by: str = "--output_dir") -> None:
    """Replaces the content of `path` in one step: a reader, or a crash at any moment, finds either the old or the new
    content. For `chosen_by` see `explain_write_errors`. If the first chunk cannot be made, nothing is created."""
    temporary = path.with_name(f".{path.name}.new")
    made = iter(chunks)
    first = [*islice(made, 1)]
    with explain_write_errors(path, chosen_by):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file:
                file.writelines(chain(first, made))
                file.flush()
                os.fsync(file.fileno())  # else a power cut could leave the new name with no content
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
