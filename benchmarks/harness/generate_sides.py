"""What `decode.py` and `prefill.py` have in common: the peers, the commands of all sides, and the summary of a run."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.generate_work import Case, case_of
from benchmarks.harness.measure import Report, Runs, Side, add_device, cores, median, roofline, side_command
from benchmarks.harness.roofline import ModelShape, Work, decode_work, model_shape, prefill_work
from benchmarks.harness.wide_gguf import source_gguf, write_wide
from slimrl.models.resolve import resolve

OURS, PEERS = "slimrl", ("llama.cpp", "vLLM", "transformers")
WIDTHS = {"bfloat16": 2, "float32": 4}

Speed = Callable[[Report, int], list[float]]  # tokens/s of the passes of a report's case
Needed = Callable[[ModelShape, Case, int], Work]  # what one case's tokens need, counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of both benchmarks. llama.cpp and vLLM are measured on a CPU only."""
    add_device(parser)
    parser.add_argument(
        "--transformers-python",
        default=sys.executable,
        help="interpreter of an environment with transformers; empty leaves it out",
    )
    parser.add_argument("--vllm-python", default="", help="interpreter of an environment with vLLM for the CPU")
    parser.add_argument("--llama-bin", default="", help="directory that holds llama.cpp's llama-batched-bench")
    parser.add_argument("--passes", type=int, default=2, help="timed passes of each case in each process")


def private(arguments: argparse.Namespace) -> dict[str, str]:
    """Paths of this machine and what to publish in their place."""
    return {
        arguments.transformers_python: "TRANSFORMERS_ENVIRONMENT/bin/python",
        arguments.vllm_python: "VLLM_ENVIRONMENT/bin/python",
        arguments.llama_bin: "LLAMA_BIN",
    }


def sides(arguments: argparse.Namespace, cases: Sequence[Case], directory: Path) -> list[Side]:
    """Every side to measure, for every dtype. llama.cpp's model files are written to `directory`."""
    found = []
    bound = ",".join(map(str, cores()[: arguments.threads]))
    # Left to itself, vLLM keeps one core for its front end.
    of_vllm = {
        "VLLM_CPU_OMP_THREADS_BIND": bound,
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    for dtype in arguments.dtype:
        options = ["--model", str(resolve(arguments.model)), "--dtype", dtype, "--threads", str(arguments.threads)]
        options += ["--passes", str(arguments.passes), "--cases", *map(str, cases)]
        commands = {OURS: side_command(sys.executable, "ours_generate")}
        if arguments.llama_bin:
            gguf = directory / f"{dtype}.gguf"
            write_wide(source_gguf(arguments.model), gguf, dtype)
            program = Path(arguments.llama_bin) / "llama-batched-bench"
            script = side_command(sys.executable, "llama_generate")
            commands["llama.cpp"] = [*script, "--program", str(program), "--gguf", str(gguf)]
        if arguments.vllm_python:
            commands["vLLM"] = side_command(arguments.vllm_python, "vllm_generate")
        if arguments.transformers_python:
            commands["transformers"] = side_command(arguments.transformers_python, "transformers_generate")
        if arguments.device == "cuda":
            options += ["--device", "cuda"]
        for name, command in commands.items():
            found.append(Side(name, dtype, [*command, *options], of_vllm if name == "vLLM" else {}))
    return found


def prefill_speed(report: Report, number: int) -> list[float]:
    """Prompt tokens a second, the first token of each sequence included in the time."""
    found = report["cases"][number]
    case = case_of(found["case"])
    return [case.batch * case.prompt / seconds for seconds in found["prefill_s"]]


def decode_speed(report: Report, number: int) -> list[float]:
    """Sampled tokens a second, after every sequence had its first."""
    case = report["cases"][number]
    return [tokens / s for tokens, s in zip(case["decoded"], case["decode_s"], strict=True)]


def decode_needed(shape: ModelShape, case: Case, width: int) -> Work:
    """One token's share of a step in the middle of the decoding."""
    return decode_work(shape, case.batch, case.prompt + 1 + case.new / 2, width).share(case.batch)


def prefill_needed(shape: ModelShape, case: Case, width: int) -> Work:
    """One prompt token's share."""
    return prefill_work(shape, case.batch, case.prompt, width).share(case.batch * case.prompt)


def summary(runs: Runs, cases: Sequence[Case], model: str, speed: Speed, tokens_needed: Needed) -> dict[str, Any]:
    """Tokens a second of each dtype, case and side, our share of the limit, and how many times faster we are."""
    machine, shape = roofline(runs), model_shape(resolve(model))
    result: dict[str, Any] = {}
    for dtype, reports in runs.items():
        gflops, gb_per_s = machine[f"{dtype}_gflops"], machine["memory_gb_per_s"]
        for number, case in enumerate(cases):
            work = tokens_needed(shape, case, WIDTHS[dtype])
            limit = 1 / work.seconds(gflops, gb_per_s)
            result.setdefault(dtype, {})[str(case)] = {
                "limit_tokens_per_s": round(limit),
                "limited_by": "arithmetic" if work.gflop / gflops > work.gigabytes / gb_per_s else "memory",
                **_ratios({side: [speed(r, number) for r in some] for side, some in reports.items()}, limit),
            }
    return result


def _ratios(speeds: Mapping[str, Sequence[Sequence[float]]], limit: float) -> dict[str, Any]:
    """Medians over all passes; ratios of these, and of the medians within each repetition."""
    pooled = {side: median([v for values in some for v in values], 1) for side, some in speeds.items()}
    ours = [median(values, 1) for values in speeds[OURS]]
    peers = [side for side in PEERS if side in speeds]
    pairs = {side: zip(ours, speeds[side], strict=True) for side in peers}
    return {
        "tokens_per_s": pooled,
        "share_of_limit": {side: round(value / limit, 3) for side, value in pooled.items()},
        "times_faster": {side: round(pooled[OURS] / pooled[side], 2) for side in peers},
        "times_faster_by_repetition": {
            side: [round(mine / median(theirs, 1), 2) for mine, theirs in some] for side, some in pairs.items()
        },
    }


def speed_row(numbers: Mapping[str, Any]) -> list[str]:
    """The cells of one case: limit, ours with its share of the limit, each peer with how many times faster we are."""
    ours = f"{numbers['tokens_per_s'][OURS]:,.0f} ({numbers['share_of_limit'][OURS]:.0%})"
    cells = [f"{numbers['limit_tokens_per_s']:,} ({numbers['limited_by']})", ours]
    for side in PEERS:
        measured = side in numbers["tokens_per_s"]
        speed = numbers["tokens_per_s"].get(side, 0.0)
        cells.append(f"{speed:,.0f} ({numbers['times_faster'][side]:.2f}x)" if measured else "")
    return cells


SPEED_HEAD = (
    "limit tok/s",
    "slimrl tok/s (share of limit)",
    *(f"{side} tok/s (slimrl is)" for side in PEERS),
)
