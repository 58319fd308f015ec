"""Makes the C library keep the memory that tensors free, for the next tensors, within bounds. Knows nothing of models.

By default glibc returns every large block to the operating system, which hands it back one zeroed page at a time: for
tensors that live for one operation, such as logits, that costs several times the operation itself. What is kept has
holes, though. Every step has tensors of other sizes, and what outlives a step lies between them, so that a process
would grow with every step by what did not fit (measured: 3 to 7 GB in 40 steps of a model of 135 million parameters).
Much of what outlives it is oneDNN's, which keeps the code of 1,024 products, one for each number of tokens that it has
met, at 0.3 to 0.7 MB each.
"""

import ctypes
import os
import platform
from pathlib import Path

# From <malloc.h>. Blocks up to the mapping threshold come from the heap, whose unused end is trimmed above the other.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = 2**31 - 1
# Larger blocks are few, and the holes they would leave in the heap are filled by smaller ones: it would grow and grow.
LARGE = 1 << 26
# Those of a few numbers of tokens: one is used by all layers, one after the other, and then hardly ever again.
MOST_PRODUCTS = 128
GROWTH = 1.2


def keep_freed_memory() -> bool:
    """True where it was done: in a process on glibc, before its first product. Elsewhere nothing changes."""
    if not _is_glibc():
        return False
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(MOST_PRODUCTS))
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE) and mallopt(M_TRIM_THRESHOLD, NEVER))


class HeapTrimmer:
    """What is free between the blocks in use, given back to the operating system when a process has grown by a fifth
    since the step after the last time: too seldom to cost time. Call `trim` after every step."""

    def __init__(self) -> None:
        self._limit = 0.0  # bytes; 0 when the next step is to tell what steps take

    def trim(self) -> bool:
        """True if it was done now."""
        if not _is_glibc():
            return False
        resident = _resident_bytes()
        if not self._limit:
            self._limit = resident * GROWTH
        if resident <= self._limit:
            return False
        ctypes.CDLL(None).malloc_trim(0)
        self._limit = 0.0
        return True


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
