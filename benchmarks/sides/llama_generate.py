"""The llama.cpp side of `decode.py` and `prefill.py`: its own `llama-batched-bench`, which samples nothing.

It feeds random tokens instead of drawn ones, so neither a distribution nor a log-probability is computed. One process
for each pass; it warms up by itself and times prefill and decoding without the loading of the model.
"""

import json
import os
import resource
import subprocess
from pathlib import Path

from benchmarks.harness.generate_work import Case, GenerateReport, Timing, side_arguments


class Bench:
    """Runs the program on one model file."""

    def __init__(self, program: Path, gguf: Path, threads: int) -> None:
        self._start = [str(program), "-m", str(gguf), "-t", str(threads), "-tb", str(threads), "-ngl", "0"]
        self._environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}

    def __call__(self, case: Case, seed: int) -> Timing:
        """`-ntg` must be positive, so a case without decoding decodes one token beyond it, which is not reported."""
        new = max(1, case.new)
        context = case.batch * (case.prompt + new)
        sizes = {"-npp": case.prompt, "-ntg": new, "-npl": case.batch, "-c": context}
        options = [word for flag, value in sizes.items() for word in (flag, str(value))]
        command = [*self._start, *options, "--output-format", "jsonl"]
        result = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
        assert result.returncode == 0 and len(lines) == 1, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
        row = json.loads(lines[0])
        decode_s = row["t_tg"] if case.new else 0.0
        return Timing(row["t_pp"], decode_s, case.batch * case.new)


def main() -> None:
    parser = side_arguments()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--gguf", type=Path, required=True)
    arguments = parser.parse_args()
    report = GenerateReport(
        side="llama.cpp",
        versions={"llama.cpp": build_number(arguments.program)},
        settings=f"llama-batched-bench, weights {arguments.dtype}, keys and values float16; no sampling",
        num_threads=arguments.threads,
    )
    bench = Bench(arguments.program, arguments.gguf, arguments.threads)
    report.measure(arguments.cases, arguments.passes, bench)
    report.write(arguments.output, who=resource.RUSAGE_CHILDREN)


def build_number(program: Path) -> str:
    """What the program says of itself."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}
    result = subprocess.run([str(program), "--version"], env=environment, capture_output=True, text=True)
    lines = [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("version")]
    return lines[0].partition(":")[2].strip() if lines else "unknown"


if __name__ == "__main__":
    main()
