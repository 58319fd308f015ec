"""Common first and last names in plain letters, for lists to be sorted. No name occurs twice in the two lists together.

`names.txt` has the first names, an empty line, and the last names. `is_held_out` selects the names that no training
task has.
"""

from pathlib import Path

from slimrl.environments.held_out import split_by_hash

FIRST_NAMES, LAST_NAMES = (
    tuple(names.split()) for names in Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split("\n\n")
)


def is_held_out(name: str) -> bool:
    """Return True if a name is used in test lists only. The result depends only on the name."""
    return split_by_hash(name) == "test"
