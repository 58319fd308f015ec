"""The module reads a process's output through a pipe while the process runs."""

import asyncio
import os
from collections.abc import Callable

MAX_BYTES = 8 * 2**20  # more output stops the execution
_PART = 65536
_BYTES_PER_CHAR = 4  # at most, in UTF-8


class Output:
    """An output keeps the first `num_chars` characters from a pipe. It discards the rest, so that a writer never
    waits for a full pipe. `ended` is set when the last writer has closed the pipe."""

    def __init__(self, pipe: int, num_chars: int) -> None:
        self._pipe = pipe
        self._num_chars = num_chars
        self._kept = bytearray()
        self._num_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = asyncio.Event()
        os.set_blocking(pipe, False)

    def start(self, on_flood: Callable[[], None]) -> None:
        """Start reading; `on_flood` is called if the output exceeds MAX_BYTES."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._read, on_flood)

    def stop(self) -> None:
        """Stop reading."""
        if self._loop:
            self._loop.remove_reader(self._pipe)

    @property
    def text(self) -> str:
        """The first `num_chars` characters."""
        return self._decode()[: self._num_chars]

    @property
    def is_truncated(self) -> bool:
        """True if `text` is not the whole output."""
        return self._num_bytes > len(self._kept) or len(self._decode()) > self._num_chars

    def _decode(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def _read(self, on_flood: Callable[[], None]) -> None:
        try:
            part = os.read(self._pipe, _PART)
        except BlockingIOError:
            return
        if not part:  # the end of the stream
            self.stop()
            self.ended.set()
            return
        self._num_bytes += len(part)
        # Enough bytes for `num_chars` characters of any kind; `text` cuts exactly.
        self._kept += part[: max(0, self._num_chars * _BYTES_PER_CHAR - len(self._kept))]
        if self._num_bytes > MAX_BYTES:
            self.stop()
            self.ended.set()
            on_flood()
