"""Freed memory stays with the process, as page faults show, until the heap is trimmed."""

import platform
import subprocess
import sys

import pytest

# Page faults of ten tensors of 64 MB, each freed before the next, after ten that make the heap large enough.
KEPT = """
import resource
import torch
from slimrl.models.allocator import keep_freed_memory

def faults():
    for _ in range(10):
        torch.zeros(16_000_000).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

assert 200 < -faults() + faults()  # each tensor is 32 huge pages or 15,625 small ones
assert keep_freed_memory()
assert -faults() + faults() < 100
"""
# 400 MB that are freed and kept, until a step is found to hold more than those before it.
GROWN = """
import torch
from slimrl.models.allocator import HeapTrimmer, _resident_bytes, keep_freed_memory

keep_freed_memory()
torch.ones(1 << 20)
trimmer = HeapTrimmer()
assert not trimmer.trim()
before = _resident_bytes()
tensors = [torch.ones(1 << 20) for _ in range(100)]
tensors.clear()
assert _resident_bytes() - before > 350e6
assert trimmer.trim()
assert _resident_bytes() - before < 100e6
assert not trimmer.trim()
"""
# 400 MB that are freed and returned, though a model that is loaded later asks to keep them.
RETURNED = """
import torch
from slimrl.models.allocator import _resident_bytes, keep_freed_memory, return_freed_memory

return_freed_memory()
assert keep_freed_memory()
torch.ones(1 << 20)
before = _resident_bytes()
tensors = [torch.ones(1 << 20) for _ in range(100)]
tensors.clear()
assert _resident_bytes() - before < 100e6
"""


@pytest.mark.nightly
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
@pytest.mark.parametrize("script", [KEPT, GROWN, RETURNED], ids=["kept", "grown", "returned"])
def test_freed_memory_is_kept_until_it_is_too_much(script: str) -> None:
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
