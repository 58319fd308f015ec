"""Compiles the C++ kernels in this directory for this CPU, once, and loads them. Knows nothing of tensors.

Needs a C++ compiler with OpenMP (`apt install g++`). Without a compiler, slimrl uses PyTorch's own operations, which
are slower and give the same results up to rounding.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root, say

HERE = Path(__file__).parent
SOURCES = ("each_dtype.cpp", "products.cpp", "attention.cpp", "packed.cpp", "decoder.cpp")
# No flag allows the compiler to reorder sums, or to ignore infinite numbers and NaN.
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
TIMEOUT_S = 300
VERSION_TIMEOUT_S = 10
LIBRARY = "kernels.so"
MOST_QUOTED = 200  # characters of a compiler's error
REMEDY = "Install one, for example by `apt install g++`"


@functools.cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """Compile the kernels unless they are cached. Return the library, or None and the reason why it is missing."""
    compiler = find_compiler()
    if compiler is None:
        return None, f"no C++ compiler found. {REMEDY}"
    try:
        return ctypes.CDLL(str(compile_kernels(compiler, cache_root() / "kernels"))), ""
    except (OSError, subprocess.SubprocessError, UserError) as error:
        return None, f"`{shlex.join(compiler)}` failed: {first_error(error)}. See `slimrl doctor`."


def library() -> ctypes.CDLL | None:
    """Return the compiled kernels; None if they cannot be compiled."""
    return load()[0]


def why_slow() -> str:
    """Return a console line that explains why there are no kernels and how to get them; empty if there are kernels."""
    _, fault = load()
    return f"no fast CPU kernels, so steps take up to twice as long: {fault}" if fault else ""


def first_error(error: Exception) -> str:
    """Return the line with a compiler's first error, or the message of another exception."""
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    said: str = error.stderr
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [str(error)]
    return next((line for line in lines if "error" in line.lower()), lines[-1])[:MOST_QUOTED]


def find_compiler() -> list[str] | None:
    """Find the C++ compiler: $CXX, or the first of g++, c++ and clang++ on the PATH."""
    if chosen := shlex.split(os.environ.get("CXX", "")):
        return chosen
    return next(([name] for name in ("g++", "c++", "clang++") if shutil.which(name)), None)


def compile_kernels(compiler: list[str], directory: Path) -> Path:
    """Compile the kernels with `compiler` for this CPU, unless the library is cached and undamaged. Return the path of
    the library, which is below `directory`.

    Raises OSError or UserError, or SubprocessError if the compiler fails. Several processes may call this function at
    the same time.
    """
    command = [*compiler, *FLAGS, *_platform_flags()]
    version = _run([*compiler, "--version"], VERSION_TIMEOUT_S)
    digest = hashlib.sha256(repr((command, _cpu(), version)).encode())
    for path in sorted(HERE.iterdir()):
        # Headers matter as much as sources: the library's name must depend on all of its inputs.
        if path.suffix in (".cpp", ".inc", ".h"):
            digest.update(path.read_bytes())

    def build(temporary: Path) -> None:
        say("compiling the kernels for this CPU, once")
        sources = [str(HERE / name) for name in SOURCES]
        _run([*command, "-shared", *sources, "-o", str(temporary / LIBRARY)], TIMEOUT_S)
        (temporary / LIBRARY).stat()  # raises if the compiler reports success but made nothing

    return build_once(directory / digest.hexdigest()[:16], build) / LIBRARY


def _run(command: Sequence[str], timeout_s: float) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s).stdout


def _platform_flags() -> list[str]:
    """Return the compiler's flags for this CPU and for PyTorch's OpenMP library. A second OpenMP library would compete
    with PyTorch's for cores."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    native = ["-march=native", "-mprefer-vector-width=512"] if x86 else ["-mcpu=native"]
    if platform.system() == "Darwin":
        return [*native, "-Xclang", "-fopenmp", f"-L{Path(torch.__file__).parent / 'lib'}", "-lomp"]
    return [*native, "-fopenmp"]


def _cpu() -> str:
    """Return the CPU's features. `-march=native` depends on them, and machines with different CPUs may share a cache of
    kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
