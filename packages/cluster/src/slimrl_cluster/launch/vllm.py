"""Runs vLLM as the sampler of a run: a child process, announced when it answers, and stopped with this one."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.http import is_healthy
from slimrl.models.resolve import resolve
from slimrl_cluster.services.children import Child, Children
from slimrl_cluster.services.vllm_sampler import vllm_command, vllm_environment

POLL_S = 0.5
HEALTH_S = 5.0  # time limit of a request for vLLM's health
LAST_LINES = 20
BATCHED_TOKENS = 4096
FAILED = 1


def run_vllm(
    config: RLConfig,
    name: str,
    dtype: str,
    place: tuple[str, int],
    stopped: threading.Event,
    announce: Callable[[str], None],
) -> int:
    """Run vLLM as the program `name`, at the host and port of its `place`, until `stopped` is set. Call `announce` with
    its address when it answers. Return the exit status, which is not 0 if vLLM ended by itself. Raises UserError if it
    cannot be started."""
    gpus, address = config.inference_gpu_ids, f"http://{place[0]}:{place[1]}"
    command = vllm_command(config.inference, resolve(config.model.name), config.seq_len, place, dtype)
    if not gpus:
        # On a CPU, vLLM 0.32 fails if the prompt of a request with a seed is computed in parts.
        most = str(max(BATCHED_TOKENS, config.seq_len))
        command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", most]
    environment = vllm_environment()
    if gpus:
        command += ["--tensor-parallel-size", str(len(gpus))]
        # Indices refer to the GPUs that this process sees, which may be some of the machine's.
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible[gpu] if visible else str(gpu) for gpu in gpus)
    with Children(Path(config.output_dir) / "logs") as children:
        vllm = children.start(name, command, environment=environment)
        print(f"vLLM: process {vllm.pid}, log {vllm.log}", flush=True)
        if not _await_answer(vllm, address, stopped):
            print("\n".join(vllm.new_lines(LAST_LINES)))
            assert vllm.end
            raise UserError(f"{vllm.end.text}. It has never answered, so it is not started again.")
        announce(address)
        print(f"vLLM answers at {address}", flush=True)
        while not stopped.wait(POLL_S):
            if end := vllm.end:
                print("\n".join([*vllm.new_lines(LAST_LINES), end.text]))
                return FAILED
    return 0


def _await_answer(vllm: Child, address: str, stopped: threading.Event) -> bool:
    """Wait until vLLM answers, or for a signal. Return True if it still runs."""
    while not stopped.wait(POLL_S):
        if vllm.status is not None:
            return False
        if is_healthy(address, HEALTH_S):
            return True
    return True
