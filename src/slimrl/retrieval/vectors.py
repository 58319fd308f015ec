"""The module stores vectors in order in one SQLite file; batches once appended survive a kill at any moment.

All methods raise sqlite3.Error if the file cannot be read or written.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class VectorFile:
    """A file of vectors of one dimension, created if it is missing. Only one process at a time may open it."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)  # autocommit: each batch is a transaction
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY, length INTEGER NOT NULL, data BLOB NOT NULL)"
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COALESCE(SUM(length), 0) FROM batch").fetchone()[0])

    def append(self, vectors_ND: Vectors) -> None:
        """Append a batch of vectors, (N, D)."""
        data = np.ascontiguousarray(vectors_ND, dtype=np.float32).tobytes()
        self._database.execute("INSERT INTO batch (length, data) VALUES (?, ?)", (len(vectors_ND), data))

    def batches(self) -> Iterator[Vectors]:
        """The batches as they were appended, each (N, D)."""
        for length, data in self._database.execute("SELECT length, data FROM batch ORDER BY number"):
            yield np.frombuffer(data, dtype=np.float32).reshape(length, -1)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
