"""Freed memory stays with the process, as page faults show, until the heap is trimmed."""

import platform
import subprocess
import sys

import pytest

ONLY_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
SCRIPT = """
import resource, sys
import torch
from slimrl.models.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()

def use():
    torch.zeros(16_000_000).add_(1)  # 64 MB, thrown away

for _ in range(10):
    use()  # until the heap is large enough
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
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


def run(script: str, *words: str) -> str:
    result = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.nightly
@ONLY_GLIBC
def test_a_process_that_keeps_its_memory_does_not_ask_for_it_again():
    assert int(run(SCRIPT, "keep")) < 100
    assert int(run(SCRIPT, "return")) > 200  # each tensor is 32 huge pages or 15,625 small ones


@pytest.mark.nightly
@ONLY_GLIBC
@pytest.mark.parametrize("script", [GROWN, RETURNED], ids=["grown", "returned"])
def test_what_is_not_used_is_given_back(script: str):
    run(script)
