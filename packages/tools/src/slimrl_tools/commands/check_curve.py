"""The `check-curve` command: checks whether a run behaves like the recorded seeds of its recipe."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl_tools.curves.curve_check import Comparison, CurveCheck, check_curve

STATUS = {"behaves": 0, "differs": 1, "void": 2}
STYLES = {"behaves": "bold green", "differs": "bold red", "void": "bold yellow"}
EPILOG = """\
Runs of the recipes in examples/ have been recorded on several seeds (benchmarks/results/). A run of such a recipe is
recognised by its settings, and compared with them: the training reward at every step, smoothed, and the held-out
rewards before RL, after it, and their difference. Where it leaves the band, the step and the direction are named. A run
that behaves is called otherwise about once in a hundred times. The run may still be going on: then what is there is
compared.

Exit status: 0 the run behaves, 1 it differs, 2 it cannot be told, as its settings are not the recipe's.

  slimrl check-curve outputs/reverse_text
"""


def run_check_curve(argv: Sequence[str]) -> int:
    """Run `slimrl check-curve RUN`. Returns the exit status. Raises UserError if it fails."""
    parser = argparse.ArgumentParser(
        prog="slimrl check-curve", allow_abbrev=False, epilog=EPILOG,
        description="Says whether a run behaves like the recorded runs of its recipe.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("run", type=Path, metavar="RUN", help="the output directory of a run of `slimrl rl`")
    check = check_curve(parser.parse_args(argv).run)
    _show(check, RunConsole())
    return STATUS[check.verdict]


def sentences(check: CurveCheck) -> Iterator[str]:
    """Yield the sentences that describe a comparison; the first sentence is the verdict."""
    recipe = check.recipe
    against = f"{recipe.num_seeds} recorded seeds of {recipe.config_file}"
    left = "; ".join(map(_describe, check.outside))
    match check.verdict:
        case "behaves":
            yield f"behaves like {against}"
        case "differs":
            yield f"differs from {against}: {left}"
        case "void":
            yield f"cannot be compared with {against}, as its settings are others; the numbers below prove nothing"
            yield from (f"  {one}" for one in check.differences if not one.loose)
    if loose := [one for one in check.differences if one.loose]:
        yield f"the comparison is loose: {'; '.join(map(str, loose))}"
    if check.num_steps < recipe.num_steps:
        yield f"{check.num_steps} of {recipe.num_steps} steps are there: the rest is not judged"


def _describe(finding: Comparison) -> str:
    edge = finding.low if finding.direction == "below" else finding.high
    at = "" if finding.step is None else f" from step {finding.step} on"
    return f"{finding.what} is {finding.direction} the band{at} ({finding.value:.3f}, its edge is {edge:.3f})"


def _show(check: CurveCheck, console: RunConsole) -> None:
    verdict, *rest = sentences(check)
    console.note(verdict, style=STYLES[check.verdict])
    rows: list[tuple[str, ...]] = [("compared", "step", "this run", "band", "is")]
    for one in check.findings:
        step = "" if one.step is None else str(one.step)
        rows.append((one.what, step, f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}", one.direction))
    console.show(for_terminal(Cells("", tuple(rows)), console.is_live))
    for line in rest:
        console.note(line)
