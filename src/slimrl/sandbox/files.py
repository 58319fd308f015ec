"""Copies what code leaves in its working directory, which may be anything. Knows nothing of who left it.

Only files and directories are copied: symbolic links are not followed, or a link to one of the host's files would have
the host hand it over.
"""

import os
import stat

_DEPTH = 16
_PART = 2**20
_PAGE_BYTES = 4096  # what the smallest file takes


class TooMuch(Exception):
    """More, larger or deeper than may be copied."""


class Copy:
    """Copies trees between directories given as descriptors, `num_bytes` and `num_files` in all."""

    def __init__(self, num_bytes: int, num_files: int) -> None:
        self._num_bytes = num_bytes
        self._num_files = num_files

    def tree(self, source: int, target: int, depth: int = 0) -> None:
        """Raises TooMuch, and has copied a part then. Whatever cannot be read is left out."""
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
            os.fchmod(inner_target, 0o777)  # the next execution may be another user
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
        self._num_bytes -= _PAGE_BYTES
        try:
            os.fchmod(writing, 0o666)
            while part := os.read(reading, _PART):
                self._num_bytes -= len(part)
                if self._num_bytes < 0 or os.write(writing, part) < len(part):  # written in part: the disk is full
                    raise TooMuch
        finally:
            os.close(reading)
            os.close(writing)


def _open(name: str, directory: int, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=directory)
