"""Writes and checks checksums of the files in a directory, and of single JSON objects.

A sealed directory has a file `SHA256SUMS`, which is written last. The file has the format of sha256sum(1):

    cd outputs/my_run/weights/step_100 && sha256sum -c SHA256SUMS

A directory without this file is from an earlier version or another program, and cannot be checked. A JSON object can
have a last member `sha256`: the digest of the text before it.
"""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular, read_regular

SUMS = "SHA256SUMS"
MAX_SUMS_BYTES = 16 * 2**20  # some hundred thousand files
# The header has the number of lines, so that missing lines at the end are detected.
HEADER = "# slimrl: {} files. Delete this file to use the directory with files that you have changed.\n"
# The header is optional, because sha256sum(1) does not write it.
SUM_FILE = re.compile(rf"(?:{re.escape(HEADER)})?".replace(r"\{\}", r"(\d+)") + r"((?:[0-9a-f]{64} [ *][^\n]+\n)*)")
DIGEST_KEY = "sha256"
DIGEST = re.compile(rb'(.*), "sha256": "([0-9a-f]{64})"\}\s*', re.DOTALL)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 digest of a file's content, in hexadecimal. Raise UserError if it cannot be read."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(directory: Path) -> None:
    """Write `SHA256SUMS` with a line for every file below the directory. Wait until all these files are on the disk.

    Raise OSError if a file cannot be written.
    """
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS)
    write_sums(directory / SUMS, files)


def write_sums(sums: Path, files: Iterable[Path]) -> None:
    """Write the checksums of `files` to the file `sums`, and wait until all these files are on the disk. `files` must
    be below the directory of `sums`. Raise OSError if a file cannot be read or written."""
    paths = list(files)
    for path in paths:
        _wait_for_disk(path)
    digests = zip(_digests(paths), paths, strict=True)
    lines = [f"{digest}  {path.relative_to(sums.parent).as_posix()}\n" for digest, path in digests]
    sums.write_text(HEADER.format(len(lines)) + "".join(lines), encoding="utf-8")
    _wait_for_disk(sums)


def is_sealed(directory: Path) -> bool:
    """Return True if a directory has checksums, valid or not."""
    return os.path.lexists(directory / SUMS)


def find_damage(directory: Path, names: Collection[str] | None = None) -> str:
    """Return a text about the first missing file, or else about all changed files; empty if there are none.

    With `names`, only these files are checked; names are relative to the directory. If `SHA256SUMS` is missing or
    damaged, it is reported. Files that it does not list are not checked.
    """
    try:
        listed = _read_sums(directory / SUMS)
    except (UserError, ValueError):
        return f"its {SUMS} is missing or damaged"
    wanted = [name for name in listed if names is None or name in names]
    if missing := [name for name in wanted if not (directory / name).is_file()]:
        return f"{missing[0]} is missing"
    try:
        found = _digests(directory / name for name in wanted)
    except UserError as error:
        return str(error)
    changed = [name for name, digest in zip(wanted, found, strict=True) if digest != listed[name]]
    return f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} not as written (SHA-256)" if changed else ""


def check_sums(directory: Path, names: Collection[str] | None = None) -> None:
    """Raise UserError if a directory has checksums and a file in it is damaged. For `names` see `find_damage`.

    Directories without checksums are accepted.
    """
    if is_sealed(directory) and (damage := find_damage(directory, names)):
        raise UserError(
            f"{directory} is damaged: {damage}. Use another of the run's weights, or copy the file again from where it "
            f"is whole. If you changed it yourself, delete {directory / SUMS} and it is used as it is."
        )


@contextlib.contextmanager
def new_directory(directory: Path, lasts: bool = True) -> Iterator[Path]:
    """Context manager: yield an empty temporary directory. If the body succeeds, seal this directory and rename it to
    `directory`. An older `directory` is replaced. With `lasts=False`, for data that need not survive a power cut or
    years on a disk, the directory is not sealed, which saves most of the time.

    The files get the permissions of the umask. Otherwise only the owner could read files that safetensors writes. Only
    one process may write at a time, because this function first deletes what killed writers have left. A kill never
    leaves a half-written `directory`. But if an older `directory` is being replaced, a kill may leave no `directory`.
    """
    remove_unfinished(directory.parent, directory.name)
    temporary = directory.with_name(f".{directory.name}.tmp-{os.getpid()}")
    temporary.mkdir(parents=True)
    # The umask cannot be read without changing it for all threads; this is its effect on 0777.
    allowed = temporary.stat().st_mode & 0o666
    try:
        yield temporary
        if lasts:
            seal(temporary)
        for path in temporary.rglob("*"):
            if path.is_file():
                path.chmod(path.stat().st_mode | allowed)
        old = temporary.with_name(f"{temporary.name}-old")
        if directory.exists():
            directory.rename(old)  # a rename cannot replace a directory that is not empty
        temporary.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(parent: Path, name: str = "*") -> None:
    """Delete the temporary directories of killed writers in `parent`. `name` is the final name of the directory; by
    default any name matches."""
    for leftover in parent.glob(f".{name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def add_digest(json_object: bytes) -> bytes:
    """Append a last member `sha256` to the text of a JSON object. It is the digest of the text before it.

    >>> add_digest(b'{"a": 1}')[:32]
    b'{"a": 1, "sha256": "795efb8f8bdc'
    """
    body = json_object.rstrip().removesuffix(b"}").rstrip()
    return body + f', "{DIGEST_KEY}": "{hashlib.sha256(body).hexdigest()}"}}'.encode()


def has_wrong_digest(json_object: bytes) -> bool:
    """Return True if the text has a wrong digest, False if it has none, as in files of earlier versions."""
    found = DIGEST.fullmatch(json_object)
    return found is not None and hashlib.sha256(found[1]).hexdigest().encode() != found[2]


def _digests(paths: Iterable[Path]) -> list[str]:
    # hashlib releases Python's global lock, so the threads use several cores.
    with ThreadPoolExecutor() as pool:
        return list(pool.map(file_sha256, paths))


def _read_sums(path: Path) -> dict[str, str]:
    """Return a dict from file names to digests. Raise UserError if the file cannot be read, and ValueError if its
    format is invalid."""
    whole = SUM_FILE.fullmatch(read_regular(path, MAX_SUMS_BYTES).decode())
    lines = whole[2].split("\n")[:-1] if whole else []
    if whole is None or (int(whole[1]) != len(lines) if whole[1] else not lines):
        raise ValueError("the list of checksums is not whole")
    return {line[66:]: line[:64] for line in lines}


def _wait_for_disk(path: Path) -> None:
    """Wait until a file's content is on the disk. Without this wait before a rename, a power cut could leave an
    incomplete file with the final name."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
