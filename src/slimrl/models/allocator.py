"""Tunes glibc's malloc for tensors: freed memory is reused, and the heap is trimmed before it grows without bound.

By default, glibc allocates every large block by `mmap`, and returns the block to the operating system when the tensor
is freed. The next tensor gets new pages, which the system zeroes one by one. For tensors that live for one operation,
such as logits, this costs several times as much as the operation itself. `keep_freed_memory` makes malloc allocate such
blocks from its heap (arena) and keep them there.

A heap that is never returned becomes fragmented. Every training step has tensors of other sizes, and small blocks that
outlive a step lie between them. Larger blocks do not fit the gaps, so they extend the heap (measured: 3 to 7 GB in 40
steps of a model of 135 million parameters). `HeapTrimmer` calls `malloc_trim`, which returns the free pages between
blocks to the operating system and moves no block. Many of the blocks that outlive a step belong to oneDNN. oneDNN
caches the machine code of up to 1,024 matrix products, at 0.3 to 0.7 MB each. A step with a new number of tokens adds
new products. So this module makes oneDNN's cache smaller, too. Knows nothing of models.
"""

import ctypes
import os
import platform
from pathlib import Path

# Parameters of `mallopt`, from <malloc.h>. Blocks below the mmap threshold use the heap. The heap's unused end is
# returned when it exceeds the trim threshold. All threads share one arena. Otherwise, training could not reuse the
# memory of the thread in which episodes sample.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
NEVER = 2**31 - 1
# Larger blocks still use `mmap`. There are few of them. On the heap, small blocks would fill the gaps that large blocks
# leave, and the next large block would not fit.
LARGE = 1 << 26
RETURNED = 1 << 20  # `return_freed_memory` applies to larger blocks: nearly all gathered layers and activations
# Capacity of oneDNN's cache, in products. All layers of a step have the same number of tokens, and later steps rarely
# have it again. So products for a few numbers of tokens are enough.
MOST_PRODUCTS = 128
_returns = False  # True once `return_freed_memory` was called
GROWTH = 1.2  # trim when a process has grown by this factor


def keep_freed_memory() -> bool:
    """Make malloc keep freed memory, and return True on success. Call this before the first matrix product.

    Without glibc, do nothing and return False. After `return_freed_memory`, large blocks are still returned to the
    system.
    """
    if not _is_glibc():
        return False
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(MOST_PRODUCTS))
    mallopt = ctypes.CDLL(None).mallopt
    is_large = _returns or mallopt(M_MMAP_THRESHOLD, LARGE)
    return bool(is_large and mallopt(M_TRIM_THRESHOLD, NEVER) and mallopt(M_ARENA_MAX, 1))


def return_freed_memory() -> None:
    """Undo `keep_freed_memory` permanently for blocks of a megabyte or more, and return all free memory to the system
    now.

    A sharded module gathers and frees every layer twice a step. With recomputed activations, each layer frees its
    activations separately. A heap that kept these freed blocks would waste more memory than sharding and recomputation
    save. Call this before loading a module that will be sharded: the heap would keep the memory that loading frees.
    """
    global _returns
    _returns = True
    if _is_glibc():
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, RETURNED)
        libc.malloc_trim(0)


class HeapTrimmer:
    """Returns free heap pages to the operating system when the process has grown by a fifth.

    Call `trim` after every step. The first call, and the first call after each trim, only measure the memory of the
    process; growth is relative to this measurement. Trimming must be rare, because the next step must get the returned
    pages from the system again.
    """

    def __init__(self) -> None:
        self._limit = 0.0  # bytes of resident memory; 0: the next call measures it

    def trim(self) -> bool:
        """Trim the heap if the process has grown. Return True if the heap was trimmed."""
        if not _is_glibc():
            return False
        resident = _resident_bytes()
        if not self._limit:
            self._limit = resident * GROWTH
        if resident <= self._limit:
            return False
        ctypes.CDLL(None).malloc_trim(0)
        # The next call measures again, after a training step that has allocated most of the returned memory again.
        self._limit = 0.0
        return True


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"


def _resident_bytes() -> int:
    # The second field is the resident set, in pages; `getrusage` reports only its peak.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
