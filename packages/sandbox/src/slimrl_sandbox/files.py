"""The module copies the files that untrusted code has left in its working directory.

Only regular files and directories are copied. Symbolic links are never followed: through a link to one of the host's
files, the code could have the host read that file for it.
"""

import os
import stat

_DEPTH = 16
_PART = 2**20
_PAGE_BYTES = 4096  # the memory that the smallest file takes


class TooMuch(Exception):
    """The files are more, larger or nested deeper than may be copied."""


class Copy:
    """A copier of directory trees with a budget of `num_bytes` and `num_files` in all. Directories are descriptors: a
    path could be replaced by a link between two calls."""

    def __init__(self, num_bytes: int, num_files: int) -> None:
        self._num_bytes = num_bytes
        self._num_files = num_files
        self._budget = num_bytes

    @property
    def num_bytes(self) -> int:
        """The bytes that the copied files take."""
        return self._budget - self._num_bytes

    def tree(self, source: int, target: int, depth: int = 0) -> None:
        """Copy one directory into another; what cannot be read is left out. Raises TooMuch after copying a part."""
        for name in os.listdir(source):
            mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                self._num_files -= 1
                if self._num_files < 0 or depth > _DEPTH:
                    raise TooMuch
                if stat.S_ISREG(mode):
                    self._file(name, source, target)
                else:
                    self._directory(name, source, target, depth)

    def _directory(self, name: str, source: int, target: int, depth: int) -> None:
        try:
            inner_source = _open(name, source, os.O_RDONLY | os.O_DIRECTORY)
        except PermissionError:
            return
        os.mkdir(name, dir_fd=target)
        inner_target = _open(name, target, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fchmod(inner_target, 0o777)  # the next execution may run under another user id
            self.tree(inner_source, inner_target, depth + 1)
        finally:
            os.close(inner_source)
            os.close(inner_target)

    def _file(self, name: str, source: int, target: int) -> None:
        try:
            reading = _open(name, source, os.O_RDONLY)
        except PermissionError:
            return
        writing = _open(name, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.fchmod(writing, 0o666)
            self._spend(_PAGE_BYTES)
            while part := os.read(reading, _PART):
                self._spend(len(part))
                if os.write(writing, part) < len(part):  # a short write means a full disk
                    raise TooMuch
        finally:
            os.close(reading)
            os.close(writing)

    def _spend(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes
        if self._num_bytes < 0:
            raise TooMuch


def _open(name: str, directory: int, flags: int) -> int:
    """A descriptor of a file in a directory. Links are refused, and opening a named pipe does not wait."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=directory)
