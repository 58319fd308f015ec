"""The module implements `scripts/run_llamacpp.py`: it serves the judge named in `.env` with llama.cpp."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from slimrl_search.services.install import ensure_installed, on_path
from slimrl_search.services.judge_settings import JudgeSettings, judge_settings
from slimrl_search.services.process import Program
from slimrl_search.services.script import make_parser, start_or_stop
from slimrl_search.services.weights import find_gguf

NAME = "llama-server"
REQUIREMENT = "xllamacpp==2026.10.11549"
NEEDED_GB = 0.5
WHY = "llama.cpp, compiled for any CPU, 100 MB; one compiled for yours, on the PATH as llama-server, is faster"
ABOUT = """\
Runs llama.cpp's server as the judge: on the CPU, or on a GPU if your llama.cpp was built for one.

Reads .env: JUDGE_MODEL, a .gguf file, smollm2-135m (packaged), qwen2.5:7b, qwen2.5:3b, qwen3-8b,
qwen3-4b, or owner/repository of weights on the Hub (:Q8_0 or /file.gguf behind it chooses a file);
and JUDGE_BASE_URL, whose port it listens on. Gets what is missing, says where it lies, and returns
when the server is ready. If it runs already, nothing happens.
"""
EXAMPLES = """\
examples:
  uv run python scripts/run_llamacpp.py
  uv run python scripts/run_llamacpp.py --parallel 8 --ctx-size 16384
  JUDGE_MODEL=smollm2-135m uv run python scripts/run_llamacpp.py -f
  uv run python scripts/run_llamacpp.py --stop
"""


def main(argv: Sequence[str]) -> int:
    """Run the script and return its exit status. Raises UserError."""
    options, settings = _parser().parse_args(argv), judge_settings()
    return start_or_stop(options, NAME, settings.port, lambda: program_of(settings, options))


def program_of(settings: JudgeSettings, options: argparse.Namespace) -> Program:
    """Return the server to start. Missing weights and a missing llama.cpp are downloaded first. Raises UserError."""
    port = settings.port  # a wrong address is reported before anything slow
    weights, launcher = find_gguf(settings.model), _launcher(options.program)
    numbers = {"--port": port, "--parallel": options.parallel, "--ctx-size": options.ctx_size}
    command = [*launcher, "--model", str(weights), "--alias", settings.model, "--host", "127.0.0.1"]
    command += [word for name, number in numbers.items() for word in (name, str(number))]
    about = f"llama.cpp with {settings.model}, {options.parallel} at once in a context of {options.ctx_size}"
    # A program from an archive has its shared libraries beside it, which the system's loader does not search.
    libraries = [str(Path(launcher[0]).parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return Program(NAME, port, command, about, {"LD_LIBRARY_PATH": os.pathsep.join(libraries)})


def _launcher(given: str) -> list[str]:
    """Return the first words of the command: `llama-server`, or the Python program for the one inside `xllamacpp`."""
    found = on_path(given, NAME)
    if found is not None:
        return [str(found)]
    return [
        str(ensure_installed(REQUIREMENT, WHY, NEEDED_GB) / "bin" / "python"),
        str(Path(__file__).with_name("llama_program.py")),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = make_parser("run_llamacpp.py", ABOUT, EXAMPLES)
    parser.add_argument("--parallel", type=int, default=4, help="requests answered at once (default 4)")
    parser.add_argument(
        "--ctx-size", type=int, default=8192, help="tokens of context, shared by all of them (default 8192)"
    )
    parser.add_argument("--program", default="", help="the llama-server to use, instead of the one on the PATH")
    return parser
