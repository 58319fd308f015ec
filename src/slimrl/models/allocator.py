"""Makes the C library keep the memory that tensors free, for the next tensors. Knows nothing of models.

By default glibc returns every large block to the operating system, which hands it back one zeroed page at a time: for
tensors that live for one operation, such as logits, that costs several times the operation itself.
"""

import ctypes
import platform

# From <malloc.h>. Blocks up to the mapping threshold come from the heap, whose unused end is trimmed above the other.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = 2**31 - 1
# Larger blocks are few, and the holes they would leave in the heap are filled by smaller ones: it would grow and grow.
LARGE = 1 << 26


def keep_freed_memory() -> bool:
    """True where it was done: in a process on glibc. Elsewhere nothing changes."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE) and mallopt(M_TRIM_THRESHOLD, NEVER))
