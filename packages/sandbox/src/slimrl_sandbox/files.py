"""The module copies the files that untrusted code has left in its working directory.

Only regular files and directories are copied. Symbolic links are never followed: through a link to one of the host's
files, the code could make the host read that file.
"""

import os
import stat

_DEPTH = 16
_PART = 2**20
_PAGE_BYTES = 4096  # the memory that the smallest file takes
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class TooMuch(Exception):
    """The files are more or larger than the limits, or nested too deeply."""


def copy_tree(source: int, target: int, num_bytes: int, num_files: int) -> int:
    """Copy the files of one directory into another, both descriptors; return the bytes that the files take.

    Unreadable files are left out. Raises TooMuch, after copying a part, for more than `num_bytes` or `num_files`.
    """
    taken = num_copied = 0
    for folder, _, names, descriptor in os.fwalk(".", dir_fd=source, onerror=_skip_unreadable):
        if folder.count("/") > _DEPTH:
            raise TooMuch
        if folder != ".":
            os.mkdir(folder, dir_fd=target)
            os.chmod(folder, 0o777, dir_fd=target)  # the next execution may run under another user id
            num_copied += 1
        for name in names:
            if stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                num_copied += 1
                if num_copied <= num_files:
                    taken += _copy_file(name, descriptor, f"{folder}/{name}", target, num_bytes - taken)
        if num_copied > num_files:
            raise TooMuch
    return taken


def _copy_file(name: str, source: int, path: str, target: int, num_bytes: int) -> int:
    try:
        reading = os.open(name, _READ, dir_fd=source)
    except PermissionError:
        return 0
    with open(reading, "rb", buffering=0) as file, open(os.open(path, _CREATE, dir_fd=target), "wb", 0) as copy:
        os.fchmod(copy.fileno(), 0o666)
        taken = _PAGE_BYTES
        while taken <= num_bytes and (part := file.read(_PART)):
            taken += len(part)
            if copy.write(part) < len(part):  # a short write means a full disk
                raise TooMuch
        if taken > num_bytes:
            raise TooMuch
    return taken


def _skip_unreadable(error: OSError) -> None:
    if not isinstance(error, PermissionError):
        raise error
