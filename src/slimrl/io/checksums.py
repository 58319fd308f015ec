"""Checksums of what slimrl writes and reads again later: of the files of a directory, and of one JSON object.

A sealed directory has a file `SHA256SUMS`, which is written last. The format is that of sha256sum(1):

    cd outputs/my_run/weights/step_100 && sha256sum -c SHA256SUMS

A directory without that file is one of an earlier version or of another program, and says nothing of itself. A JSON
object that is not to be confused with a damaged one ends in a member `sha256`, the digest of the text before it.
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
# The number of lines is written down, because a file that lost its last ones would vouch for too little.
HEADER = "# slimrl: {} files. Delete this file to use the directory with files that you have changed.\n"
# Without the header it is sha256sum's own.
SUM_FILE = re.compile(rf"(?:{re.escape(HEADER)})?".replace(r"\{\}", r"(\d+)") + r"((?:[0-9a-f]{64} [ *][^\n]+\n)*)")
DIGEST_KEY = "sha256"
DIGEST = re.compile(rb'(.*), "sha256": "([0-9a-f]{64})"\}\s*', re.DOTALL)


def file_sha256(path: Path) -> str:
    """The SHA-256 digest of a file's content, in hexadecimal. Raises UserError if it cannot be read."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(directory: Path) -> None:
    """Writes `SHA256SUMS` with a line for every file below the directory, and waits until all of them are on the disk.

    Raises OSError if it cannot be written.
    """
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS)
    write_sums(directory / SUMS, files)


def write_sums(sums: Path, files: Iterable[Path]) -> None:
    """Writes the checksums of `files`, which lie below the directory of `sums`, to the file `sums`. Both are on the
    disk afterwards. Raises OSError if they cannot be read or written."""
    paths = list(files)
    for path in paths:
        _wait_for_disk(path)
    # hashlib works without Python's lock, so threads share the files among the cores.
    with ThreadPoolExecutor() as pool:
        digests = pool.map(file_sha256, paths)
        lines = [
            f"{digest}  {path.relative_to(sums.parent).as_posix()}\n"
            for digest, path in zip(digests, paths, strict=True)
        ]
    sums.write_text(HEADER.format(len(lines)) + "".join(lines), encoding="utf-8")
    _wait_for_disk(sums)


def is_sealed(directory: Path) -> bool:
    """Whether a directory has checksums, whatever they look like."""
    return os.path.lexists(directory / SUMS)


def find_damage(directory: Path, names: Collection[str] | None = None, sums: str = SUMS) -> str:
    """A phrase that names the first file that is missing or not as it was written; empty if there is none.

    `names` limits the check to these files, given relative to the directory. `sums` is the name of the file with the
    checksums, without which the phrase says so. What is not listed there is not looked at.
    """
    try:
        listed = _read_sums(directory / sums)
    except (UserError, ValueError):
        return f"its {sums} is missing or damaged"
    wanted = [name for name in listed if names is None or name in names]
    if missing := [name for name in wanted if not (directory / name).is_file()]:
        return f"{missing[0]} is missing"
    try:
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(file_sha256, [directory / name for name in wanted]))
    except UserError as error:
        return str(error)
    changed = [name for name, digest in zip(wanted, found, strict=True) if digest != listed[name]]
    return f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'} not as written (SHA-256)" if changed else ""


def check_sums(directory: Path, names: Collection[str] | None = None) -> None:
    """Raises UserError if a file of a directory with checksums is damaged; `names` as in `find_damage`.

    Directories without checksums pass: they come from the Hub, from another program or from an earlier version.
    """
    if is_sealed(directory) and (damage := find_damage(directory, names)):
        raise UserError(
            f"{directory} is damaged: {damage}. Use another of the run's weights, or copy the file again from where it "
            f"is whole. If you changed it yourself, delete {directory / SUMS} and it is used as it is."
        )


@contextlib.contextmanager
def new_directory(directory: Path, lasts: bool = True) -> Iterator[Path]:
    """Yields an empty temporary directory that is sealed, becomes `directory`, and replaces what is there, if the body
    succeeds. One that need not last, through a power cut or years on a disk, is not sealed, which saves most of the
    time.

    Its files have the mode that the umask gives, whoever wrote them: safetensors lets only their owner read them. Only
    one process may write at a time: the remains of killed writers are deleted first. A kill never leaves a
    half-written `directory`; while an older one is being replaced, it can leave none.
    """
    remove_unfinished(directory.parent, directory.name)
    temporary = directory.with_name(f".{directory.name}.tmp-{os.getpid()}")
    temporary.mkdir(parents=True)
    # The umask cannot be read without changing it for all threads, but this is what it made of 0777.
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
            directory.rename(old)  # a directory cannot be renamed onto one that is not empty
        temporary.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_unfinished(parent: Path, name: str = "*") -> None:
    """Deletes what killed writers have left of `name`, or of all directories, in `parent`."""
    for leftover in parent.glob(f".{name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def add_digest(json_object: bytes) -> bytes:
    """The text of a JSON object with a last member `sha256`, the digest of all the text before it.

    >>> add_digest(b'{"a": 1}')[:32]
    b'{"a": 1, "sha256": "86ef4dbeedef'
    """
    body = json_object.rstrip().removesuffix(b"}").rstrip()
    return body + f', "{DIGEST_KEY}": "{hashlib.sha256(body).hexdigest()}"}}'.encode()


def has_wrong_digest(json_object: bytes) -> bool:
    """Whether the text carries a digest that is not its own; one without any, of an earlier version, has no wrong
    one."""
    found = DIGEST.fullmatch(json_object)
    return found is not None and hashlib.sha256(found[1]).hexdigest().encode() != found[2]


def _read_sums(path: Path) -> dict[str, str]:
    """The digests by the names of the files. Raises UserError or ValueError unless every byte is in its place."""
    whole = SUM_FILE.fullmatch(read_regular(path, MAX_SUMS_BYTES).decode())
    lines = whole[2].split("\n")[:-1] if whole else []
    if whole is None or (int(whole[1]) != len(lines) if whole[1] else not lines):
        raise ValueError("the list of checksums is not whole")
    return {line[66:]: line[:64] for line in lines}


def _wait_for_disk(path: Path) -> None:
    """Waits until a file's content is on the disk: a rename does not, and a power cut could leave the final name on
    half a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
