"""Holds out one in five items of a taskset, by a hash of each text. The result is the same on every machine and does
not depend on other items."""

import hashlib

from slimrl.types import Split

SHARE = 5


def split_by_hash(text: str) -> Split:
    """Return the split of a text, `train` or `test`, a pure function of the text."""
    return "test" if hashlib.sha256(text.encode()).digest()[0] % SHARE == 0 else "train"
