"""The module stores vectors in order in one SQLite file; appended batches survive a kill at any moment.

All methods raise sqlite3.Error if the file cannot be read or written. Each batch is stored with its digest.
"""

import hashlib
import sqlite3
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class VectorFile:
    """A file of vectors of one dimension, created if missing. Only one process at a time may open it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)  # autocommit: each batch is a transaction
        weakref.finalize(self, self._database.close)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS vectors "
            "(number INTEGER PRIMARY KEY, length INTEGER NOT NULL, data BLOB NOT NULL, sha256 BLOB NOT NULL)"
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COALESCE(SUM(length), 0) FROM vectors").fetchone()[0])

    def append(self, vectors_ND: Vectors) -> None:
        """Append a batch of vectors, (N, D)."""
        data = np.ascontiguousarray(vectors_ND, dtype=np.float32).tobytes()
        row = len(vectors_ND), data, _digest(len(vectors_ND), data)
        self._database.execute("INSERT INTO vectors (length, data, sha256) VALUES (?, ?, ?)", row)

    def batches(self) -> Iterator[Vectors]:
        """Yield the batches as they were appended, each (N, D). Raises DatabaseError if one is damaged."""
        for length, data, digest in self._database.execute("SELECT length, data, sha256 FROM vectors ORDER BY number"):
            if _digest(length, data) != digest:
                raise sqlite3.DatabaseError(f"{self._path} is damaged; delete it")
            yield np.frombuffer(data, dtype=np.float32).reshape(length, -1)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _digest(length: int, data: bytes) -> bytes:
    return hashlib.sha256(length.to_bytes(8, "big") + data).digest()
