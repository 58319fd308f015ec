"""The summary of a run: the held-out results of each stage, the time and memory, and the path of the weights.

The summary is a dataclass. This module prints it as a table and writes it to summary.json.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Group
from rich.text import Text

from slimrl.io.files import replace_file, without_nan
from slimrl.io.run_dir import RunDir
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import empty_table
from slimrl.stats import Estimate


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a run, with its held-out results by decoding mode: {"greedy": estimate, ...}."""

    name: str
    held_out: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Prediction:
    """The peak memory in GB and the seconds per training step, predicted or measured."""

    peak_gb: float
    step_s: float


def recall_prediction(output_dir: Path) -> Prediction | None:
    """Return the prediction that is stored in `output_dir`; None if the file is missing or damaged."""
    try:
        content = json.loads(RunDir(output_dir).prediction.read_text(encoding="utf-8"))
        return Prediction(float(content["peak_gb"]), float(content["step_s"]))
    except (OSError, ValueError, LookupError, TypeError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run. `stages` are sorted by time: base model, after the warm-up (if any), after RL.

    `baseline` has the results of one constant answer to all tasks, or is None.

    `command` is the command line that evaluates the weights again. `view` is the command line that shows the run in the
    browser. `predicted` is the prediction before the run, or None. `measured` are the measured values.
    """

    stages: tuple[Stage, ...]
    duration_s: float
    tokens_sampled: int
    tokens_trained: int
    weights: Path
    command: str
    view: str = ""
    baseline: Stage | None = None
    predicted: Prediction | None = None
    measured: Prediction | None = None


def show_summary(console: RunConsole, summary: RunSummary) -> None:
    """Print the summary as a table. Rows of the same decoding mode are adjacent. The path of the weights and the
    command follow below the table, so that users can copy both."""
    table = empty_table("held-out reward", console.is_live)
    for header in ("decoding", "weights"):
        table.add_column(header)
    for header in ("mean", "95% interval", "n"):
        table.add_column(header, justify="right", no_wrap=True)
    # Collect the modes of all stages, in the order of their first use, because a stage may lack some of them.
    stages = [*([summary.baseline] if summary.baseline else []), *summary.stages]
    for label in dict.fromkeys(label for stage in stages for label in stage.held_out):
        rows = [(stage.name, stage.held_out[label]) for stage in stages if label in stage.held_out]
        for number, (name, estimate) in enumerate(rows, start=1):
            is_last = number == len(rows)
            cells = ("" if number > 1 else label, name, f"{estimate.mean:.3f}", estimate.interval, str(estimate.num))
            table.add_row(*cells, style="bold" if is_last else "", end_section=is_last)
    facts = (
        ("time", f"{summary.duration_s / 60:.1f} min"),
        ("tokens", f"{summary.tokens_sampled:,} sampled, {summary.tokens_trained:,} trained"),
        *_foretold(summary),
        ("weights", str(summary.weights)),
        ("evaluate", summary.command),
        *([("look", summary.view)] if summary.view else []),
    )
    lines = [Text.assemble((f"{name:<10}", "dim"), value) for name, value in facts]
    for line in lines:
        line.overflow, line.no_wrap = "ignore", True  # do not wrap a path or command, so that it can be copied
    console.show(Group(table, *lines) if summary.stages else Group(*lines))


def _foretold(summary: RunSummary) -> list[tuple[str, str]]:
    predicted, measured = summary.predicted, summary.measured
    if predicted is None or measured is None:
        return []
    memory, step = (predicted.peak_gb, measured.peak_gb), (predicted.step_s, measured.step_s)
    return [
        ("memory", f"{memory[0]:.2f} GB predicted, {memory[1]:.2f} GB measured{_off(*memory)}"),
        ("step", f"{step[0]:.1f} s predicted, {step[1]:.1f} s measured{_off(*step)}"),
    ]


def _off(predicted: float, measured: float) -> str:
    percent = round(100 * (predicted / measured - 1)) if measured > 0 else 0
    return f" (predicted {abs(percent)}% too {'high' if percent > 0 else 'low'})" if percent else ""


def write_summary(path: Path, summary: RunSummary) -> None:
    """Write summary.json atomically. Raise UserError if the disk is full."""
    content = {name: value for name, value in asdict(summary).items() if name != "view" and value is not None}
    if summary.predicted is None:
        content.pop("measured", None)
    content["weights"] = str(summary.weights)
    text = json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False)
    replace_file(path, [(text + "\n").encode()])
