"""Reads what the trainer has recorded of each trained token: `rollouts/step_000012.tokens.npz`, beside the rollouts."""

import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("advantage", "entropy", "log_ratio")
Values = dict[str, list[float | None]]


def token_values(rollouts: Path, line: int, mask: list[int]) -> dict[str, list[float | None] | None]:
    """The recorded values of a rollout's tokens by name: for each a list with None where the policy did not sample, or
    None in place of the list if it was not recorded."""
    found = _of_line(rollouts.with_name(f"{rollouts.stem}.tokens.npz"), line)
    places = [number for number, sampled in enumerate(mask) if sampled]
    values: dict[str, list[float | None] | None] = dict.fromkeys(NAMES)
    for name, numbers in found.items():
        if len(numbers) == len(places):
            spread: list[float | None] = [None] * len(mask)
            for place, number in zip(places, numbers, strict=True):
                spread[place] = number
            values[name] = spread
    return values


def _of_line(path: Path, line: int) -> dict[str, list[float]]:
    try:
        arrays = _load(path, path.stat().st_mtime_ns)
    except OSError:
        return {}
    where = np.flatnonzero(arrays["rows"] == line) if arrays else np.empty(0)
    if len(where) == 0:
        return {}
    end = int(arrays["lengths"][: where[0] + 1].sum())
    begin = end - int(arrays["lengths"][where[0]])
    return {name: arrays[name][begin:end].astype(float).tolist() for name in NAMES if name in arrays}


@lru_cache(maxsize=4)
def _load(path: Path, mtime_ns: int) -> dict[str, Any]:
    """The arrays of a file as it was at a time; empty if it is none, or being written."""
    try:
        # Opened here, because numpy does not close a file that is none of its own.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("rows", "lengths", *NAMES) if name in file.files}
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return {}
    return arrays if {"rows", "lengths"} <= arrays.keys() else {}
