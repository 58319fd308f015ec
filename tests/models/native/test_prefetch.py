"""What `prefetch.h` prefetches, counted by a program that includes it; and that other CPUs need no header of Intel."""

import platform
import subprocess
from pathlib import Path

import pytest

from slimrl.models.native import build, zig

pytestmark = pytest.mark.slow

# The prefetch instruction is replaced by one that prints the line that it was given.
PROGRAM = """
#include <immintrin.h>
#include <cstdint>
#include <cstdio>
const char* memory = (const char*)4096;
#undef _mm_prefetch
#define _mm_prefetch(at, hint) std::printf("%ld ", long((at) - memory) / LINE)
#include "prefetch.h"

void fetch(Prefetch prefetch) {
    for (int i = 0; i < 6; i++) prefetch.step();
    std::printf("\\n");
}

int main() {
    fetch({});
    Prefetch one, two;
    one.lines = 32;
    one.ranges[0] = {memory, 0, 1};
    fetch(one);
    two.lines = 16;
    two.ranges[0] = {memory, 100 * LINE, 2};
    two.ranges[1] = {memory + 1000 * LINE, 0, 1};
    fetch(two);
}
"""


def found_compiler() -> list[str]:
    compiler = build.find_compiler()
    if compiler is None or zig.is_zig(compiler) or platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("there is no compiler for the kernels that prefetch")
    return compiler


def test_every_range_is_prefetched_once_and_nothing_else(tmp_path: Path) -> None:
    source, program = tmp_path / "count.cpp", tmp_path / "count"
    source.write_text(PROGRAM)
    flags = ["-std=c++17", "-D__AMX_BF16__", f"-I{build.HERE}"]
    subprocess.run([*found_compiler(), *flags, str(source), "-o", str(program)], check=True)
    shown = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    lines = [[int(number) for number in line.split()] for line in shown]
    assert lines == [[], [*range(32)], [*range(16), *range(100, 116), *range(1000, 1016)]]


@pytest.mark.parametrize("source", build.SOURCES)
def test_without_a_matrix_unit_nothing_of_intels_is_asked_for(source: str, tmp_path: Path) -> None:
    (tmp_path / "immintrin.h").write_text("#error there is no such header for other processors\n")
    flags = ["-std=c++17", "-fsyntax-only", "-fopenmp", "-march=x86-64", f"-I{tmp_path}"]
    subprocess.run([*found_compiler(), *flags, str(build.HERE / source)], check=True)
