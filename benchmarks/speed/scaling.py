"""How the cost of a step grows with its unique tokens: rollouts, turns and context doubled, one at a time.

A step is one group of episodes: sampling by the real agent loop, client and engine, then one train step. Sampling and
training are timed separately. Written besides the JSON file is a plot with logarithmic axes and the exponent fitted to
each line; 1 is proportional to the unique tokens, below 1 a doubling costs less than twice.

    python -m benchmarks.speed.scaling
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot

from benchmarks.harness.measure import (
    Runs,
    Side,
    alternate,
    common_arguments,
    machine_facts,
    markdown_table,
    median,
    roofline,
    side_command,
    write_result,
)
from benchmarks.sides.ours_episodes import Group, group_of
from slimrl.models.resolve import resolve

BASE = Group(rollouts=4, turns=2, prompt=128, observation=64, reply=32)
PARTS = {"sample_s": "sampling", "train_s": "training"}
HEAD = ("dtype", "doubled", "from", "to", "unique tokens", "sampling s", "its exponent", "training s", "its exponent")


def main() -> None:
    parser = common_arguments(__doc__ or "", "scaling.json", repetitions=2)
    parser.add_argument("--doublings", type=int, default=3, help="of each quantity")
    parser.add_argument(
        "--base", type=group_of, default=BASE, help="ROLLOUTS,TURNS,PROMPT,OBSERVATION,REPLY to start at"
    )
    parser.add_argument("--timed", type=int, default=2, help="timed groups of each kind in each process")
    arguments = parser.parse_args()
    facts = machine_facts()
    series = all_series(arguments.base, arguments.doublings)
    runs = alternate(sides(arguments, series), arguments.repetitions, arguments.threads)
    content = {"roofline": roofline(runs), "summary": summary(runs, series), "runs": runs}
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, {})
    plot(content, arguments.output.with_suffix(".png"))


def all_series(base: Group, doublings: int) -> dict[str, list[Group]]:
    """The groups along each line: what is doubled -> from small to large."""
    factors = [2**n for n in range(doublings + 1)]
    lengths = (base.observation, base.reply)
    return {
        "rollouts": [Group(base.rollouts * f, base.turns, base.prompt, *lengths) for f in factors],
        "turns": [Group(base.rollouts, base.turns * f, base.prompt, *lengths) for f in factors],
        "context": [Group(base.rollouts, base.turns, base.prompt * f, *lengths) for f in factors],
    }


def sides(arguments: argparse.Namespace, series: dict[str, list[Group]]) -> list[Side]:
    """One process for each dtype and line."""
    found = []
    for dtype in arguments.dtype:
        command = [*side_command(sys.executable, "ours_episodes"), "--model", str(resolve(arguments.model)), "--train"]
        command += ["--dtype", dtype, "--threads", str(arguments.threads), "--timed", str(arguments.timed)]
        found += [Side(name, dtype, [*command, "--groups", *map(str, groups)]) for name, groups in series.items()]
    return found


def summary(runs: Runs, series: dict[str, list[Group]]) -> dict[str, Any]:
    """The unique tokens and median seconds of each dtype and line, point by point, and the exponents."""
    result: dict[str, Any] = {}
    for dtype, reports in runs.items():
        for name, groups in series.items():
            points = [[report["groups"][number] for report in reports[name]] for number in range(len(groups))]
            line: dict[str, Any] = {"groups": list(map(str, groups))}
            for key in ("unique", *PARTS):
                line[key] = [median([v for report in point for v in report[key]]) for point in points]
            line["exponent"] = {key: exponent(line["unique"], line[key]) for key in PARTS}
            result.setdefault(dtype, {})[name] = line
    return result


def exponent(unique: list[float], seconds: list[float]) -> float:
    """The slope of the least-squares line through the logarithms."""
    slope, _ = np.polyfit(np.log(unique), np.log(seconds), 1)
    return round(float(slope), 2)


def table(content: dict[str, Any]) -> str:
    """One line for each dtype and quantity, from the content of the JSON file."""
    rows = []
    for dtype, lines in content["summary"].items():
        for name, line in lines.items():
            first, last = (group_of(line["groups"][end]) for end in (0, -1))
            ends = [str({"rollouts": g.rollouts, "turns": g.turns, "context": g.prompt}[name]) for g in (first, last)]
            parts = []
            for key in PARTS:
                parts += [f"{line[key][0]:.2f}-{line[key][-1]:.2f}", f"{line['exponent'][key]:.2f}"]
            rows.append((dtype, name, *ends, f"{line['unique'][0]:,.0f}-{line['unique'][-1]:,.0f}", *parts))
    return markdown_table(HEAD, rows)


def plot(content: dict[str, Any], path: Path) -> None:
    """Sampling and training side by side, for each dtype a row."""
    matplotlib.use("Agg")
    dtypes = content["summary"]
    figure, axes = pyplot.subplots(len(dtypes), 2, figsize=(10, 4 * len(dtypes)), squeeze=False, layout="constrained")
    for row, (dtype, lines) in zip(axes, dtypes.items(), strict=True):
        for panel, (key, part) in zip(row, PARTS.items(), strict=True):
            for name, line in lines.items():
                label = f"{name} doubled: exponent {line['exponent'][key]:.2f}"
                panel.loglog(line["unique"], line[key], marker="o", label=label)
            panel.set(xlabel="unique tokens of the step", ylabel="seconds", title=f"{part}, {dtype}")
            panel.grid(which="both", alpha=0.3)
            panel.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
