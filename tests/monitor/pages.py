"""Renders what the registries of metrics and monitors have for the documentation.

python -m tests.monitor.pages > docs/metrics.md
python -m tests.monitor.pages monitors                 # the table of docs/monitors.md
"""

import sys

from slimrl.monitor.health.catalogue import MONITORS
from slimrl.monitor.metrics import GROUPS, METRICS

FILE_FORMAT = (
    "A run writes its metrics to `output_dir/metrics.jsonl`. Each line is a JSON object with `step` and metrics of",
    "that step; a step may have several lines (training, evaluation). A nan or infinity is written as `null` and named",
    'in the same object, as in `"nonfinite": {"loss/policy": "nan"}`: each line is valid JSON, and nothing is lost.',
    "",
    "`step` counts the optimizer steps before: the metrics of the first training step, and of the evaluation before",
    "it, have step 0. The groups `time/`, `perf/`, `memory/` and `async/` depend on the machine, and `env/judge_...`",
    "and `held_out/judge_...` on a judge's server. A resumed run repeats all other metrics bit for bit, unless",
    "episodes of several turns wait for another process or a network: which replies are decoded together depends on",
    "the clock then, and so may the last digits of log-probabilities.",
)


def render_metrics() -> str:
    """The registry as markdown with one table per group, which is docs/metrics.md."""
    lines = ["# Metrics", "", "Rendered from `src/slimrl/monitor/metrics.csv`: `python -m tests.monitor.pages`."]
    lines += ["", *FILE_FORMAT]
    for group, about in GROUPS.items():
        lines += ["", f"## {group}/", "", about, "", "| name | meaning | unit | better | healthy |"]
        lines += ["|---|---|---|---|---|"]
        for metric in (metric for metric in METRICS if metric.group == group):
            cells = (f"`{metric.name}`", metric.meaning, metric.unit, metric.better, metric.healthy)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def render_monitors() -> str:
    """The monitors as a table in markdown."""
    lines = ["| monitor | meaning | healthy | likely cause | what to do |", "|---|---|---|---|---|"]
    for one in MONITORS:
        lines.append(f"| `{one.name}` | {one.meaning} | {one.healthy} | {one.cause} | {one.knob} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render_monitors() if sys.argv[1:] == ["monitors"] else render_metrics(), end="")
