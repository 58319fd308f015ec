"""Builds directories once, keeps them in the user's cache, and checks them on every later use.

A cache entry is a sealed directory (`io/checksums.py`). Its files are compared with their checksums on each use, which
takes half a second per gigabyte. An entry is built in a temporary directory, which is renamed when it is complete. So
an interrupted build never looks like an entry.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from slimrl.errors import visible
from slimrl.io.checksums import find_damage, new_directory
from slimrl.io.files import explain_write_errors
from slimrl.io.locks import hold_lock

CHOSEN_BY = "directory in the environment variable SLIMRL_CACHE"


def cache_root() -> Path:
    """Return `$SLIMRL_CACHE`, or `$XDG_CACHE_HOME/slimrl`, or `~/.cache/slimrl`. The directory is not created here."""
    if chosen := os.environ.get("SLIMRL_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "slimrl"


def say(text: str) -> None:
    """Print one line on standard error, separate from a command's output."""
    print(visible(text), file=sys.stderr, flush=True)


def build_once(directory: Path, build: Callable[[Path], None]) -> Path:
    """Return `directory`. Build it first if it is missing or damaged. Its name must differ for different contents.

    `build(temporary)` fills the empty directory `temporary`, and may raise UserError. If several processes request the
    same directory at once, one process builds it and the others wait. Raise UserError if the cache cannot be written.
    """
    # The common case needs no lock, because a finished entry never changes.
    if directory.is_dir() and not find_damage(directory):
        return directory
    with explain_write_errors(directory.parent, CHOSEN_BY):
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = directory.with_name(f".{directory.name}.lock")
        with hold_lock(lock, f"building {directory}", say):
            if directory.is_dir():  # another process may have built it while this one waited for the lock
                damage = find_damage(directory)
                if not damage:
                    return directory
                say(f"Rebuilding {directory}: {damage}.")
            with new_directory(directory) as temporary:
                build(temporary)
    return directory
