"""Compiles the C++ kernels in this directory for the present CPU, once, and loads them. Knows nothing of tensors.

Needs a C++ compiler with OpenMP (`apt install g++`). Without one slimrl runs on PyTorch's own operations: the same
results, to rounding, in more time.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

import torch

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root, say

HERE = Path(__file__).parent
SOURCES = ("each_dtype.cpp", "products.cpp", "attention.cpp", "packed.cpp", "decoder.cpp")
# No option that lets results depend on how a compiler regroups sums, or forgets what is not finite.
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
TIMEOUT_S = 300
LIBRARY = "kernels.so"


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None, after a warning that says why, if they cannot be compiled."""
    compiler = find_compiler()
    if compiler is None:
        warnings.warn(
            "No C++ compiler found, so slimrl computes with PyTorch's operations alone, which takes up to twice as "
            "long. Install one (Debian: `apt install g++`) or name one in $CXX.",
            stacklevel=2,
        )
        return None
    try:
        return ctypes.CDLL(str(compile_kernels(compiler, cache_root() / "kernels")))
    except (OSError, subprocess.SubprocessError, UserError) as error:
        detail = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        warnings.warn(
            f"slimrl's kernels could not be compiled with `{shlex.join(compiler)}`, so it computes with PyTorch's "
            f"operations alone, which takes up to twice as long. The compiler said:\n{detail[-2000:]}",
            stacklevel=2,
        )
        return None


def find_compiler() -> list[str] | None:
    """The command of the C++ compiler: that in $CXX, or the first of g++, c++ and clang++ that is installed."""
    if chosen := shlex.split(os.environ.get("CXX", "")):
        return chosen
    return next(([name] for name in ("g++", "c++", "clang++") if shutil.which(name)), None)


def compile_kernels(compiler: list[str], directory: Path) -> Path:
    """The path below `directory` of the library for these sources, this compiler and this CPU; compiled if it is
    missing or damaged.

    Raises OSError or UserError, or SubprocessError if the compiler fails. Several processes may call it at the same
    time.
    """
    command = [*compiler, *FLAGS, *_platform_flags()]
    asked = [*compiler, "--version"]
    version = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    digest = hashlib.sha256(repr((command, _cpu(), version)).encode())
    for path in sorted(HERE.iterdir()):
        # Headers count as much as sources: a library is named after all that went into it.
        if path.suffix in (".cpp", ".inc", ".h"):
            digest.update(path.read_bytes())

    def build(temporary: Path) -> None:
        say("compiling the kernels for this CPU, once")
        full = [*command, *(str(HERE / name) for name in SOURCES), "-o", str(temporary / LIBRARY)]
        subprocess.run(full, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        (temporary / LIBRARY).stat()  # raises for a compiler that made nothing and says that all is well

    name = digest.hexdigest()
    return build_once(directory / name[:16], build, name) / LIBRARY


def _platform_flags() -> list[str]:
    """The compiler's flags for this CPU and for the OpenMP that PyTorch has loaded: two would compete for cores."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    native = ["-march=native", "-mprefer-vector-width=512"] if x86 else ["-mcpu=native"]
    if platform.system() == "Darwin":
        return [*native, "-Xclang", "-fopenmp", f"-L{Path(torch.__file__).parent / 'lib'}", "-lomp"]
    return [*native, "-fopenmp"]


def _cpu() -> str:
    """The CPU's features, which `-march=native` depends on: a cache may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
