"""Reads the trainer's values of each trained token from `rollouts/step_000012.tokens.npz`, beside the rollouts."""

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("advantage", "entropy", "log_ratio")


def token_values(rollouts: Path, line: int, mask: list[int]) -> dict[str, list[float | None] | None]:
    """Return the recorded values of a rollout's tokens by name: for each name a list with None for tokens that the
    policy did not sample, or None instead of a list if it was not recorded."""
    values: dict[str, list[float | None] | None] = dict.fromkeys(NAMES)
    path = rollouts.with_name(f"{rollouts.stem}.tokens.npz")
    arrays = _load(path, path.stat().st_mtime_ns) if path.is_file() else {}
    if not {"rows", "lengths"} <= arrays.keys() or line not in arrays["rows"]:
        return values
    row = int(np.argmax(arrays["rows"] == line))
    begin, end = (int(arrays["lengths"][:number].sum()) for number in (row, row + 1))
    places = np.flatnonzero(mask)
    for name in NAMES & arrays.keys():
        if len(places) == len(numbers := arrays[name][begin:end]):
            spread: list[float | None] = [None] * len(mask)
            for place, number in zip(places, numbers.astype(float).tolist(), strict=True):
                spread[place] = number
            values[name] = spread
    return values


@lru_cache(maxsize=4)
def _load(path: Path, mtime_ns: int) -> dict[str, Any]:
    """Return the arrays of a file, cached by its time of change; empty if it is damaged, or still being written."""
    try:
        # Opened here, because numpy does not close a file that it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in ("rows", "lengths", *NAMES) if name in file.files}
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}
