"""A cache of verdicts on disk, by key. Independent of the judge."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slimrl.errors import UserError


class VerdictCache:
    """A cache in one file, to which several processes may add; without a path, in memory only.

    A line is a key and a digest of key and verdict, so a damaged line has no verdict and is asked again. Every method
    raises UserError if the file cannot be used.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._verdicts: dict[str, bool] = {}
        self._num_read = 0  # bytes
        if path is None:
            return
        with self._explain_errors():
            path.parent.mkdir(parents=True, exist_ok=True)
        self._read_new()

    def get(self, key: str) -> bool | None:
        """Return the verdict of a key; None if it is unknown."""
        if key not in self._verdicts:
            self._read_new()
        return self._verdicts.get(key)

    def put(self, key: str, verdict: bool) -> None:
        """Store a verdict, replacing an earlier one of the key."""
        self._verdicts[key] = verdict
        if self._path is None:
            return
        with self._explain_errors(), self._path.open("ab") as file:
            # A newline first: a killed process may have left a part of a line.
            file.write(f"\n{key} {_digest(key, verdict)}\n".encode())

    def _read_new(self) -> None:
        """Read the lines added since the last call, by any process."""
        if self._path is None:
            return
        with self._explain_errors(), self._path.open("a+b") as file:  # recreate a deleted file
            if file.seek(0, os.SEEK_END) < self._num_read:
                self._num_read = 0  # it is another file
            file.seek(self._num_read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._num_read += len(whole + newline)
        for line in whole.decode("ascii", "replace").split("\n"):
            key, _, digest = line.partition(" ")
            for verdict in (True, False):
                if digest == _digest(key, verdict):
                    self._verdicts[key] = verdict

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"the judge's cache {self._path} cannot be used: {error}. Make room for it, or delete it; SLIMRL_CACHE "
                "names another directory."
            ) from error


def _digest(key: str, verdict: bool) -> str:
    return hashlib.sha256(f"{key}={verdict}".encode()).hexdigest()[:32]
