"""Reads and appends JSON lines, and replaces files in one step.

A line reaches the operating system before `append` returns, so `kill -9` loses at most the line that is being written.
Readers skip an incomplete last line. If a line is the only copy of its data, for example of a played episode, the line
has a digest (`io/checksums.py`), so that damage is detected. Errors of the disk are converted to `UserError`s.
"""

import errno
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.checksums import DIGEST_KEY, add_digest, has_wrong_digest
from slimrl.io.regular_file import open_regular

FULL = (errno.ENOSPC, errno.EDQUOT)
NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)  # a part of the path is a file


@contextmanager
def explain_write_errors(path: Path, chosen_by: str = "--output_dir") -> Iterator[None]:
    """Convert an `OSError` from creating or writing `path` to a `UserError` with a remedy. `chosen_by` names the
    command-line argument that determines the path."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"The disk is full: {path} could not be written ({error.strerror}). Free some space there or choose "
                f"another {chosen_by}, then run the same command again; what has checkpoints goes on from the last "
                "with --resume."
            ) from error
        mend = "A part of its path is a file: c" if error.errno in NO_FOLDER else "Make it writable, or c"
        raise UserError(
            f"{path} could not be written: {error.strerror or error}. {mend}hoose another {chosen_by}."
        ) from error


def without_nan(value: Any) -> Any:
    """Replace nan and the infinities with None, because JSON lacks them. Values in dictionaries, lists and tuples are
    replaced, too."""
    return _map_leaves(value, lambda leaf: None if _is_odd(leaf) else leaf)


def encode_floats(value: Any) -> Any:
    """Replace nan with None, as `without_nan` does, and an infinity with the text "inf" or "-inf". `decode_floats`
    restores all of them."""
    return _map_leaves(value, lambda leaf: (None if math.isnan(leaf) else str(leaf)) if _is_odd(leaf) else leaf)


def decode_floats(value: Any) -> Any:
    """Restore the numbers that `encode_floats` or `without_nan` replaced. Raise ValueError for a text that is not a
    number."""
    return _map_leaves(value, lambda leaf: math.nan if leaf is None else float(leaf) if isinstance(leaf, str) else leaf)


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_leaves(item, change) for item in value]
    return change(value)


def _is_odd(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class LineFile:
    """A file that is open for appending JSON lines.

    The file is unbuffered, so a full disk raises an error at once.
    """

    def __init__(self, path: Path, keep: bool = False, digests: bool = False) -> None:
        """Create the folders of `path`, and open the file. Delete its content unless `keep` is True. With `digests`,
        every line has a digest. Raise UserError if the file cannot be opened."""
        self.path, self._digests = path, digests
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab" if keep else "wb", buffering=0)

    def append(self, record: dict[str, Any]) -> None:
        """Write one JSON object as a line. Raise UserError if the disk is full, ValueError for a non-finite number."""
        left = encode_line(record, self._digests)
        with explain_write_errors(self.path):
            while left:  # a nearly full disk writes part of a line without an error; writing the rest raises one
                left = left[self._file.write(left) :]

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        with explain_write_errors(self.path):
            self._file.close()


def encode_line(record: dict[str, Any], digest: bool = False) -> bytes:
    """Encode one JSON object and a newline as UTF-8. With `digest`, add a digest. Lone surrogates become JSON escapes,
    because UTF-8 cannot encode them."""
    line = json.dumps(record, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
    return (add_digest(line) if digest else line) + b"\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file with an object per line, without their digests. Skip an incomplete last line.

    Raise UserError if the file cannot be read, or if a complete line is not a JSON object or has a wrong digest.
    """
    with open_regular(path) as file:
        content = file.readall()
    lines = content.splitlines()
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = parse_object(line)
        except ValueError as error:
            if number == len(lines) and not content.endswith(b"\n"):
                break  # the rest of a killed writer's line
            raise UserError(f"{path}:{number} {error}. Mend or delete that line.") from None
        records.append(record)
    return records


def parse_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object of a text, without its digest. Raise ValueError if the text is not an object or has a
    wrong digest. The error message has no subject, because callers prefix it with the name of the text."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise ValueError("is not a JSON object")
    if has_wrong_digest(text):
        raise ValueError(f"is damaged: it does not agree with its own {DIGEST_KEY}")
    record.pop(DIGEST_KEY, None)
    return record


def replace_file(path: Path, chunks: Iterable[bytes], chosen_by: str = "--output_dir") -> None:
    """Replace the content of `path` in one step: a reader finds either the old or the new content, even after a crash.
    For `chosen_by` see `explain_write_errors`. If `chunks` fails before its first chunk, nothing is created."""
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
