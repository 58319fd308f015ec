"""Freed memory stays with the process, as page faults show, until the heap is trimmed."""

import os
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
# A product for each number of tokens; oneDNN says of each whether it had to be made.
PRODUCTS = """
import torch
from slimrl.models.allocator import MOST_PRODUCTS, keep_freed_memory

keep_freed_memory()
weight = torch.ops.mkldnn._reorder_linear_weight(torch.ones(64, 64))

def product(num_tokens):
    print("tokens", num_tokens, flush=True)
    torch.ops.mkldnn._linear_pointwise(torch.ones(num_tokens, 64), weight, None, "none", [], "")

for num_tokens in [*range(1, MOST_PRODUCTS + 20), MOST_PRODUCTS + 19, 1]:
    product(num_tokens)
"""


def run(script: str, *words: str, **environ: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", script, *words], env={**os.environ, **environ}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def page_faults(mode: str) -> int:
    return int(run(SCRIPT, mode))


@pytest.mark.nightly
@ONLY_GLIBC
def test_a_process_that_keeps_its_memory_does_not_ask_for_it_again():
    assert page_faults("keep") < 100
    assert page_faults("return") > 200  # each tensor is 32 huge pages or 15,625 small ones


@pytest.mark.nightly
@ONLY_GLIBC
def test_a_process_that_has_grown_gives_back_what_it_does_not_use():
    run(GROWN)


@ONLY_GLIBC
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="products by oneDNN are for x86")
@pytest.mark.nightly
def test_few_products_are_kept():
    *_, last_again, first_again = run(PRODUCTS, ONEDNN_VERBOSE="profile_create").split("tokens ")
    assert "create:cache_hit" in last_again and "create:cache_miss" not in last_again
    assert "create:cache_miss" in first_again


@ONLY_GLIBC
@pytest.mark.nightly
def test_what_is_returned_is_not_kept_by_a_model_that_is_loaded_later() -> None:
    run(RETURNED)
