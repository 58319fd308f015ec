"""What does another program on the same cores cost? An RL step, alone and beside a second run of the same kind.

Threads of OpenMP that wait for one another spin before they sleep: as long as slimrl asks for (`GOMP_SPINCOUNT`, see
`slimrl/__init__.py`), and as long as GNU's library does by itself. CPU alone.

    python -m benchmarks.speed.contention
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import (
    ROOT,
    Side,
    common_arguments,
    machine_facts,
    markdown_table,
    run_side,
    side_command,
    write_result,
)
from slimrl.config.train import TrainerConfig
from slimrl.models.resolve import resolve

SPINS = {"slimrl": "1000", "GNU": "300000"}
CASES = ("alone", "beside a second run")
ENDLESS = "100000"


def main() -> None:
    parser = common_arguments(__doc__ or "", "contention.json", repetitions=3)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each process")
    arguments = parser.parse_args()
    facts, seconds = machine_facts(), dict[str, dict[str, list[float]]]()
    micro = str(TrainerConfig().micro_batch_tokens)
    words = ["--model", str(resolve(arguments.model)), "--device", "cpu", "--dtype", arguments.dtype[0]]
    command = [*side_command(sys.executable, "ours_step"), "--micro-batch-tokens", micro, *words, "--steps"]
    for repetition in range(arguments.repetitions):
        for name, spins in SPINS.items():
            side = Side(name, arguments.dtype[0], [*command, str(arguments.steps)], {"GOMP_SPINCOUNT": spins})
            for case in CASES:
                with second_run([*command, ENDLESS], side.environment if case == CASES[1] else None):
                    report = run_side(side, arguments.threads)
                seconds.setdefault(case, {}).setdefault(name, []).extend(report["step_s"])
                print(f"repetition {repetition + 1}: {case}, {name}: {report['step_s']}", flush=True)
    content = {"spins": SPINS, "dtype": arguments.dtype[0], "seconds": seconds}
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {})


@contextmanager
def second_run(command: list[str], environment: Mapping[str, str] | None) -> Iterator[None]:
    """Have the command run in the meantime; nothing without an environment."""
    if environment is None:
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        words = [*command, "--output", str(Path(directory) / "report.json")]
        process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def table(content: Mapping[str, Any]) -> str:
    """The median step of each case, and how many times as long it takes as alone."""
    rows = []
    for case, sides in content["seconds"].items():
        for name, seconds in sides.items():
            alone = statistics.median(content["seconds"][CASES[0]][name])
            here = statistics.median(seconds)
            span = f"{here:.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
            rows.append((case, f"{name}, {int(content['spins'][name]):,} turns", span, f"{here / alone:.1f}"))
    return markdown_table(("an RL step", "waiting threads spin as with", "s (range)", "times alone"), rows)


if __name__ == "__main__":
    main()
