"""The module is behind `scripts/run_vllm.py`: it serves the judge that `.env` names by vLLM, on a GPU it may share."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slimrl.errors import UserError, nearest
from slimrl.io.cache import say
from slimrl_search.services.hub import Unreachable, cached_files, check_room, hub_model
from slimrl_search.services.install import ensure_installed, on_path
from slimrl_search.services.judge_settings import KNOWN, JudgeSettings, judge_settings
from slimrl_search.services.needs import check_nvidia_gpu
from slimrl_search.services.process import Program
from slimrl_search.services.script import make_parser, start_or_stop

NAME = "vllm"
REQUIREMENT = "vllm"
NEEDED_GB = 15.0
WEIGHTS = (".safetensors", ".bin")
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


@dataclass(frozen=True, slots=True)
class Options:
    """The server's options: `gpu_memory` is a share from 0 to 1, `sleep` opens the routes that free GPU memory."""

    gpu_memory: float
    ctx_size: int
    sleep: bool
    program: str = ""


def main(argv: Sequence[str]) -> int:
    """Run the script and return its exit status. Raises UserError."""
    arguments = _parser().parse_args(argv)
    settings = judge_settings()
    options = Options(arguments.gpu_memory, arguments.ctx_size, arguments.sleep, arguments.program)
    return start_or_stop(arguments, NAME, settings.port, lambda: program_of(settings, options))


def program_of(settings: JudgeSettings, options: Options) -> Program:
    """The server to start. A missing vLLM is installed first; it downloads the weights itself. Raises UserError."""
    port = settings.port  # a wrong address is reported before anything slow
    if not 0.0 < options.gpu_memory <= 1.0:
        raise UserError(
            f"--gpu-memory is a share of the GPU's memory, above 0 and at most 1, not {options.gpu_memory}."
        )
    model = KNOWN[settings.model][0] if settings.model in KNOWN else settings.model
    if model.endswith(".gguf"):
        raise UserError(f"JUDGE_MODEL is {model}: that is for scripts/run_llamacpp.py; vLLM wants a model of the Hub.")
    found = on_path(options.program, NAME)
    if found is None:  # one of the user's own may be built for another device
        say(f"GPU, free and whole memory: {check_nvidia_gpu()}")
    environment = _look_for(model)
    command = [str(found or ensure_installed(REQUIREMENT, WHY, NEEDED_GB) / "bin" / NAME), "serve", model]
    settings_of_vllm = {
        "--served-model-name": settings.model,
        "--host": "127.0.0.1",
        "--port": port,
        "--gpu-memory-utilization": options.gpu_memory,
        "--max-model-len": options.ctx_size,
    }
    command += [word for name, value in settings_of_vllm.items() for word in (name, str(value))]
    about = f"vLLM with {settings.model} in {options.gpu_memory:g} of the GPU's memory, context {options.ctx_size}"
    if not options.sleep:
        return Program(NAME, port, command, about, environment)
    # vLLM has the routes for sleeping only in its development mode; the server listens on this machine only.
    environment |= {"VLLM_SERVER_DEV_MODE": "1"}
    return Program(NAME, port, [*command, "--enable-sleep-mode"], f"{about}, may sleep", environment)


def _look_for(model: str) -> dict[str, str]:
    """The variables by which vLLM finds a model: without a network, that which keeps it from asking the Hub.

    Raises:
        UserError: if there is no such model, no room for it, or no network and nothing of it in the cache.
    """
    if Path(model).expanduser().is_dir():
        return {}
    if model.count("/") != 1 or model.startswith((".", "/", "~")):
        raise UserError(
            f"JUDGE_MODEL is {model!r}: no directory here, and no model that is known.{nearest(model, KNOWN)} Or name "
            "one of the Hub's, as owner/model."
        )
    try:
        info = hub_model(model)
    except Unreachable as error:
        if not any(name.endswith(WEIGHTS) for name in cached_files(model)):
            raise UserError(
                f"the Hugging Face Hub cannot be reached ({error}), and {model} is not in its cache. Check the network "
                "and HF_HUB_OFFLINE, or set JUDGE_MODEL to a model's directory."
            ) from error
        say(f"weights: {model} from the cache, as the Hugging Face Hub cannot be reached ({error})")
        return {"HF_HUB_OFFLINE": "1"}
    names = [one.rfilename for one in info.siblings or ()]
    # Of both kinds vLLM fetches the first alone.
    weights = next(filter(None, ([name for name in names if name.endswith(kind)] for kind in WEIGHTS)), [])
    if missing := check_room(info, weights):
        say(f"weights: {model}: vLLM fetches {missing / 1e9:.1f} GB, once")
    return {}


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("run_vllm.py", ABOUT, EXAMPLES)
    parser.add_argument(
        "--gpu-memory", type=float, default=0.5, help="share of the GPU's memory that it may take (default 0.5)"
    )
    parser.add_argument("--ctx-size", type=int, default=4096, help="tokens of context of a request (default 4096)")
    parser.add_argument("--sleep", action="store_true", help="open the routes by which a run has it give memory back")
    parser.add_argument("--program", default="", help="the vllm to use, instead of the one on the PATH")
    return parser
