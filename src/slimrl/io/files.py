"""Lines in files: appended whole, read back even when the last one is torn, with disk errors told in plain words.

A line reaches the operating system before `append` returns, so `kill -9` loses at most the line being written. Knows
nothing of what the lines mean.
"""

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slimrl.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)
NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)


@contextmanager
def explain_write_errors(path: Path, chosen_by: str = "--output_dir") -> Iterator[None]:
    """Turns an `OSError` from creating or writing `path` into a `UserError` that says what to do. `chosen_by` is the
    argument of the command that says where it goes."""
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
    """The value as JSON can hold it: None for nan and the infinities, also in dictionaries, lists and tuples."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {key: without_nan(item) for key, item in value.items()}
        case list() | tuple():
            return [without_nan(item) for item in value]
    return value


class LineFile:
    """A file open for appending lines. Unbuffered: a failed line leaves nothing behind to fail again on close."""

    def __init__(self, path: Path, keep: bool = False) -> None:
        """Opens `path`, making its folders; empties it unless `keep`. Raises UserError if that cannot be done."""
        self.path = path
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab" if keep else "wb", buffering=0)

    def append(self, record: dict[str, Any]) -> None:
        """Writes one JSON object as one line. Raises UserError on a full disk; ValueError on a non-finite number."""
        left = encode_line(record)
        with explain_write_errors(self.path):
            while left:  # a nearly full disk takes part of a line without an error; the error comes with the rest
                left = left[self._file.write(left) :]

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        with explain_write_errors(self.path):
            self._file.close()


def encode_line(record: dict[str, Any]) -> bytes:
    """One JSON object and a newline, in readable UTF-8. Lone surrogates, which UTF-8 lacks, become JSON escapes."""
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "backslashreplace")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines; a torn last line is left out.

    Raises UserError when the file is missing or when any line but the last is not a JSON object.
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
    """Writes `path` anew so that a reader, or a crash at any moment, sees either the old content or the new. For
    `chosen_by` see `explain_write_errors`."""
    temporary = path.with_name(f".{path.name}.new")
    with explain_write_errors(path, chosen_by):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "wb") as file:
                file.writelines(chunks)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
