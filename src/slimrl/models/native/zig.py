"""ziglang, a C++ compiler from the Python package index, for machines without a compiler.

It lacks an OpenMP library: `openmp.cpp` replaces it. Linux only, where PyTorch has loaded GNU's.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MODULE = ["-m", "ziglang"]
SOURCE = "openmp.cpp"
# Clang cannot vectorise every loop with `omp simd`, and would warn of it.
FLAGS = ("-r", "-Wno-pass-failed")


def find_zig() -> list[str] | None:
    """Return the command of the C++ compiler in the package `ziglang`; None if it is not installed."""
    if sys.platform != "linux" or importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, *MODULE, "c++"]


def is_zig(compiler: Sequence[str]) -> bool:
    """Return True for a command of `find_zig`."""
    return [*compiler[1:]] == [*MODULE, "c++"]


def compile_and_link(command: Sequence[str], sources: Sequence[str], library: Path, timeout_s: float) -> None:
    """Compile the sources into a shared library. Raises SubprocessError or OSError on failure.

    The linker is called directly: `zig c++ -shared` would first compile its own C++ library, for a minute or more.
    PyTorch has loaded the system's library, which has the few symbols that are needed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        objects = str(Path(scratch) / "kernels.o")
        link = [sys.executable, *MODULE, "ld.lld", "-shared", objects, "-o", str(library)]
        for step in ([*command, *FLAGS, *sources, "-o", objects], link):
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=timeout_s, env=env)
