"""Stores verdicts on disk, each under a key."""

from pathlib import Path

from slimrl.io.cache import CHOSEN_BY
from slimrl.io.files import explain_write_errors

VERDICTS = {"yes": True, "no": False}


class VerdictCache:
    """A cache in one file. The constructor reads the file, and several processes may append to it. Without a path, the
    cache is in memory only.

    Each line has a key, which is a digest, and yes or no. A damaged line is ignored. Raises UserError if the file
    cannot be used.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._verdicts: dict[str, bool] = {}
        if path is None:
            return
        with explain_write_errors(path, CHOSEN_BY):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+", encoding="ascii", errors="replace") as file:
                file.seek(0)
                entries = [line.partition(" ") for line in file.read().split("\n")]
        self._verdicts = {key: VERDICTS[verdict] for key, _, verdict in entries if verdict in VERDICTS}

    def get(self, key: str) -> bool | None:
        """Return the verdict of a key; None if it is unknown."""
        return self._verdicts.get(key)

    def put(self, key: str, verdict: bool) -> None:
        """Store a verdict, replacing an earlier one of the key. Raises UserError if the file cannot be used."""
        self._verdicts[key] = verdict
        if self._path is None:
            return
        with explain_write_errors(self._path, CHOSEN_BY), self._path.open("ab") as file:
            # A newline first: a killed process may have left a part of a line.
            file.write(f"\n{key} {'yes' if verdict else 'no'}\n".encode())
