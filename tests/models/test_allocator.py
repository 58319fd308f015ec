"""Freed memory stays with the process, seen by the pages that the operating system has to hand out anew."""

import platform
import subprocess
import sys

import pytest

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


def page_faults(mode: str) -> int:
    return int(subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to keep memory")
def test_a_process_that_keeps_its_memory_does_not_ask_for_it_again():
    assert page_faults("keep") < 100
    assert page_faults("return") > 200  # each tensor is 32 huge pages or 15,625 small ones
