"""The C++ compiler, and the kernels that it makes for this CPU: without them a run takes up to twice as long."""

import shlex
import shutil
import subprocess
import time

import torch

from slimrl.errors import UserError
from slimrl.io.cache import cache_root
from slimrl.models.native import ops
from slimrl.models.native.build import compile_kernels, find_compiler, first_error
from slimrl.monitor.findings import Finding, Level

TIMEOUT_S = 10.0
INSTALL = (
    "`uv sync --inexact --extra compiler` or `pip install 'slimrl[compiler]'` (Linux), `apt install g++` (Debian, "
    "Ubuntu), `dnf install gcc-c++` (Fedora), `xcode-select --install` (macOS)"
)
NONE = (
    "there is none: no kernels for this CPU, so a step takes up to twice as long there; and on a GPU no "
    "FlexAttention, whose Triton needs one too"
)


def probe() -> list[Finding]:
    """Findings on the compiler and on the kernels."""
    compiler = find_compiler()
    if compiler is None:
        return [Finding("compiler", Level.NOTE, NONE, f"{INSTALL}, or name one in $CXX")]
    found = [_compiler(compiler)]
    return [*found, kernels_finding(compiler)] if found[0].level is Level.OK else found


def _compiler(command: list[str]) -> Finding:
    if shutil.which(command[0]) is None:
        text = f"$CXX names `{shlex.join(command)}`, which is not on the PATH"
        return Finding("compiler", Level.PROBLEM, text, f"Mend or unset CXX; or {INSTALL}")
    asked = [*command, "--version"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=TIMEOUT_S, check=False).stdout
    return Finding("compiler", Level.OK, f"{shlex.join(command)}: {(said.splitlines() or ['of no known version'])[0]}")


def kernels_finding(compiler: list[str]) -> Finding:
    """Whether the kernels are compiled, and how long it took to compile or to check them."""
    began = time.perf_counter()
    try:
        path = compile_kernels(compiler, cache_root() / "kernels")
    except UserError as error:  # which says what to do about the cache
        return Finding("kernels", Level.PROBLEM, str(error))
    except (OSError, subprocess.SubprocessError) as error:
        text = (
            "they cannot be compiled, so PyTorch's operations are used, which takes up to twice as long: "
            f"{first_error(error)}"
        )
        return Finding("kernels", Level.PROBLEM, text, f"Another compiler, named in $CXX; or {INSTALL}")
    seconds = time.perf_counter() - began
    tiles = ops.has_tiles(torch.zeros(1, dtype=torch.bfloat16))
    use = "with tiles of AMX or AVX512-BF16" if tiles else "for vectors; this CPU has no tiles"
    return Finding("kernels", Level.OK, f"{use}, ready in {seconds:.1f} s ({path.parent})")
