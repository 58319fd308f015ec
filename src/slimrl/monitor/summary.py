"""The closing table of a run: what held-out evaluation said at each stage, what it cost, where the weights are.

Takes a dataclass and shows it, on a terminal, in a log file, and as summary.json. Computes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slimrl.io.files import replace_file, without_nan
from slimrl.monitor.console import RunConsole
from slimrl.stats import Estimate


@dataclass(frozen=True, slots=True)
class Stage:
    """Held-out estimates of one stage of a run, by how the tokens were chosen: {"greedy": estimate, ...}."""

    name: str
    held_out: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What the closing table shows. `stages` are in the order of time: base, after warm-up if there was one, after RL.

    `measure` says what the estimates are of, such as "held-out reward". `command` evaluates the weights again.
    """

    measure: str
    stages: tuple[Stage, ...]
    duration_s: float
    tokens_sampled: int
    tokens_trained: int
    weights: Path
    command: str


def show_summary(console: RunConsole, summary: RunSummary) -> None:
    """Prints the table and, below it, the lines to copy: where the weights are and the command."""
    console.show(render(summary, live=console.is_live))


def render(summary: RunSummary, live: bool) -> RenderableType:
    """The summary for rich; with `live` false, in plain characters only. Before and after stand under each other."""
    table = Table(
        box=box.ROUNDED if live else box.ASCII2, title=summary.measure, title_style="bold", title_justify="left"
    )
    for header in ("decoding", "weights"):
        table.add_column(header)
    for header in ("mean", "95% interval", "n"):
        table.add_column(header, justify="right", no_wrap=True)
    for label in dict.fromkeys(label for stage in summary.stages for label in stage.held_out):
        rows = [(stage.name, stage.held_out[label]) for stage in summary.stages if label in stage.held_out]
        for number, (name, estimate) in enumerate(rows, start=1):
            is_last = number == len(rows)
            cells = ("" if number > 1 else label, name, f"{estimate.mean:.3f}", estimate.interval, str(estimate.num))
            table.add_row(*cells, style="bold" if is_last else "", end_section=is_last)
    facts = (
        ("time", f"{summary.duration_s / 60:.1f} min"),
        ("tokens", f"{summary.tokens_sampled:,} sampled, {summary.tokens_trained:,} trained"),
        ("weights", str(summary.weights)),
        ("evaluate", summary.command),
    )
    lines = [Text.assemble((f"{name:<10}", "dim"), value) for name, value in facts]
    for line in lines:
        line.overflow, line.no_wrap = "ignore", True  # a path or command is to be copied: never broken by us
    return Group(table, *lines) if summary.stages else Group(*lines)


def write_summary(path: Path, summary: RunSummary) -> None:
    """Writes summary.json, whole or not at all. Raises UserError when the disk is full."""
    content = {
        "measure": summary.measure,
        "stages": [
            {"name": stage.name, "held_out": {label: asdict(value) for label, value in stage.held_out.items()}}
            for stage in summary.stages
        ],
        "duration_s": summary.duration_s,
        "tokens_sampled": summary.tokens_sampled,
        "tokens_trained": summary.tokens_trained,
        "weights": str(summary.weights),
        "command": summary.command,
    }
    text = json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False)
    replace_file(path, [(text + "\n").encode()])
