"""Compiles with ziglang, a C++ compiler from the Python package index, on machines without another compiler.

ziglang has no OpenMP library: `openmp.cpp` replaces it. This works only on Linux, where PyTorch has loaded GNU's
libgomp.
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
    """Return the command of the C++ compiler in the package `ziglang`. Return None without the package, or if this is
    not Linux."""
    if sys.platform != "linux" or importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, *MODULE, "c++"]


def is_zig(compiler: Sequence[str]) -> bool:
    """Return True if `compiler` is a command that `find_zig` returned."""
    return [*compiler[1:]] == [*MODULE, "c++"]


def compile_and_link(command: Sequence[str], sources: Sequence[str], library: Path, timeout_s: float) -> None:
    """Compile the sources into a shared library. Raises SubprocessError or OSError on failure.

    The linker is called directly: `zig c++ -shared` would first compile its own C++ library, for a minute or more. The
    few symbols that are needed are in the system's C++ library, which PyTorch has loaded.
    """
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        objects = str(Path(scratch) / "kernels.o")
        link = [sys.executable, *MODULE, "ld.lld", "-shared", objects, "-o", str(library)]
        for step in ([*command, *FLAGS, *sources, "-o", objects], link):
            subprocess.run(step, check=True, capture_output=True, text=True, timeout=timeout_s, env=env)
