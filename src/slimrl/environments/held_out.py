"""Holds out one in five of what a taskset has, by a hash of what it says: on every machine the same, wherever it stands
and whatever is added beside it."""

import hashlib

from slimrl.types import Split

SHARE = 5


def split_by_hash(text: str) -> Split:
    """The split that a text belongs to, `train` or `test`, a pure function of the text."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] % SHARE == 0 else "train"
