"""Vectors in order, batch by batch, in one SQLite file: what has been added survives being killed at any moment.

Knows nothing of what the vectors stand for. Raises sqlite3.Error where the file cannot be read or written.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class VectorFile:
    """A file of vectors of one length, made if it is not there. For one process at a time."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS batch (number INTEGER PRIMARY KEY, length INTEGER NOT NULL, data BLOB NOT NULL)"
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COALESCE(SUM(length), 0) FROM batch").fetchone()[0])

    def append(self, vectors_ND: Vectors) -> None:
        data = np.ascontiguousarray(vectors_ND, dtype=np.float32).tobytes()
        self._database.execute("INSERT INTO batch (length, data) VALUES (?, ?)", (len(vectors_ND), data))

    def batches(self) -> Iterator[Vectors]:
        """(N, D) each, as they were appended."""
        for length, data in self._database.execute("SELECT length, data FROM batch ORDER BY number"):
            yield np.frombuffer(data, dtype=np.float32).reshape(length, -1)

    def close(self) -> None:
        self._database.close()
