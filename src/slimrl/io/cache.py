"""Directories that are built once, kept in the user's cache, and checked on every later use. Knows nothing of models.

An entry is a directory with a `manifest.json` (size, modification time and SHA-256 of every file). It is built in a
temporary directory beside it and appears under its name in one rename, so an interrupted build leaves nothing that a
later run could mistake for the real thing.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from slimrl.errors import UserError, visible

MANIFEST = "manifest.json"


def cache_root() -> Path:
    """`$SLIMRL_CACHE`, or `$XDG_CACHE_HOME/slimrl`, or `~/.cache/slimrl`. Not created here."""
    if chosen := os.environ.get("SLIMRL_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "slimrl"


def say(text: str) -> None:
    """Prints one line on standard error, where it cannot mix with a command's output."""
    print(visible(text), file=sys.stderr, flush=True)


def file_sha256(path: Path) -> str:
    """The SHA-256 digest of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def build_once(directory: Path, build: Callable[[Path], None], recipe: str) -> Path:
    """Returns `directory`, which is built first if it is missing, damaged, or was built by another `recipe`.

    `build(temporary)` fills an empty directory and may raise UserError. If several processes ask for the same directory
    at once, one builds it and the others wait. Raises UserError when the cache cannot be written (permissions, disk
    full).
    """
    # The common case needs no lock: a finished entry appears by one rename and never changes afterwards.
    if directory.is_dir() and not find_damage(directory, recipe):
        return directory
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(directory):
            if directory.is_dir():  # another process may have built it while this one waited for the lock
                damage = find_damage(directory, recipe)
                if not damage:
                    return directory
                say(f"Rebuilding {directory}: {damage}.")
            with new_directory(directory) as temporary:
                build(temporary)
                write_manifest(temporary, recipe)
    except OSError as error:
        raise UserError(
            f"Cannot write to the cache {directory.parent}: {error.strerror or error}. Free some space or mend the "
            "permissions there, or name another directory in the environment variable SLIMRL_CACHE."
        ) from error
    return directory


@contextlib.contextmanager
def new_directory(directory: Path) -> Iterator[Path]:
    """Yields an empty temporary directory that becomes `directory`, and replaces what is there, if the body succeeds.

    Its files have the mode that the umask gives, whoever wrote them: safetensors lets only their owner read them. Only
    one process may write at a time: the remains of killed writers are deleted first. A kill never leaves a
    half-written `directory`; while an older one is being replaced, it can leave none.
    """
    for leftover in directory.parent.glob(f".{directory.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = directory.with_name(f".{directory.name}.tmp-{os.getpid()}")
    temporary.mkdir(parents=True)
    # The umask cannot be read without changing it for all threads, but this is what it made of 0777.
    allowed = temporary.stat().st_mode & 0o666
    try:
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                path.chmod(path.stat().st_mode | allowed)
        old = temporary.with_name(f"{temporary.name}-old")
        if directory.exists():
            directory.rename(old)  # a directory cannot be renamed onto one that is not empty
        temporary.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_manifest(directory: Path, recipe: str) -> None:
    """Writes `manifest.json`: the size, modification time and digest of every file under `directory`."""
    files = {
        path.relative_to(directory).as_posix(): {
            "bytes": path.stat().st_size,
            "mtime_ns": path.stat().st_mtime_ns,
            "sha256": file_sha256(path),
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({"recipe": recipe, "files": files}, indent=1)
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def find_damage(directory: Path, recipe: str) -> str:
    """A phrase that describes what is wrong with an entry; empty when it is as it was built.

    Sizes and modification times are compared first, without reading a file. Only a file with another time, as in a
    copied cache, is read and compared by its digest.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        made_by, files = manifest["recipe"], dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} is missing or unreadable"
    if made_by != recipe:
        return f"it was built by recipe `{made_by}`, this version uses `{recipe}`"
    for name, expected in files.items():
        path = directory / name
        if not path.is_file():
            return f"{name} is missing"
        found = path.stat()
        if found.st_size != expected["bytes"]:
            return f"{name} has {found.st_size} bytes instead of {expected['bytes']}"
        if found.st_mtime_ns != expected["mtime_ns"] and file_sha256(path) != expected["sha256"]:
            return f"{name} has changed since it was written"
    return ""


@contextlib.contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Holds the lock of an entry; waits for another process that has it, and says so."""
    # The operating system drops this lock when its holder dies, so a killed build blocks nobody.
    lock = FileLock(directory.with_name(f".{directory.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"Waiting for another process that is building {directory} ...")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
