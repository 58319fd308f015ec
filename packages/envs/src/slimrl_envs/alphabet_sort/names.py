"""Common first and last names in plain letters, for lists to be sorted. Each name occurs only once, in one of the
lists.

`names.txt` has the first names, an empty line, and the last names. `is_held_out` selects the names for the test lists.
"""

from pathlib import Path

from slimrl.environments.splits import split_by_hash

FIRST_NAMES, LAST_NAMES = (
    tuple(names.split()) for names in Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split("\n\n")
)


def is_held_out(name: str) -> bool:
    """Return True if only test lists use this name. The result depends only on the name."""
    return split_by_hash(name) == "test"
