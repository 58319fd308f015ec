"""Does a policy learn to ask? Compares the beginning and the end of runs of the matching game, and relates questions to
reward. Writes pictures, `summary.json` and `report.md`; reads only what runs have recorded. The body of
`scripts/analyze_questions.py`.
"""

import argparse
import json
import math
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.errors import UserError
from slimrl.launch.question_plots import draw_scatter, draw_training
from slimrl.launch.question_runs import MEASURES, Run, read_run, values_of
from slimrl.monitor.files import replace_file
from slimrl.monitor.plots import save_figure
from slimrl.monitor.stats import Z_95, Estimate, correlation, estimate_mean

LABELS = {
    "questions": "questions",
    "marks": "question marks",
    "words": "sentences that open with a question word",
    "score_seeking": "sentences that seek a score",
    "turns": "turns",
    "reward": "reward",
}
OVERALL, WITHIN = "over all games", "within steps"


def analyze(log_dirs: Sequence[Path], output_dir: Path) -> list[Path]:
    """Writes the pictures, the summary and the report of one run or of several, and returns their paths. Raises
    UserError where there is no run, or no finished game in it."""
    runs = [read_run(log_dir) for log_dir in log_dirs]
    found = correlations(runs)
    summary, report = output_dir / "summary.json", output_dir / "report.md"
    pictures = [
        save_figure(draw_training(runs), output_dir / "over_training.png"),
        save_figure(draw_scatter(runs, found), output_dir / "questions_and_reward.png"),
    ]
    replace_file(summary, [json.dumps(_summary(runs, found), indent=2, allow_nan=False).encode(), b"\n"])
    replace_file(report, ["\n".join(_report(runs, found)).encode(), b"\n"])
    return [*pictures, summary, report]


def correlations(runs: Sequence[Run]) -> dict[str, Estimate]:
    """Of the questions of a game with its reward: over all games of all runs; and within steps, where both are taken as
    what they differ by from the mean of their step, since two things that grow in training go together for that
    alone."""
    episodes = [episode for run in runs for episode in run.episodes]
    places = [(number, episode.step) for number, run in enumerate(runs) for episode in run.episodes]
    asked, rewards = values_of(episodes, "questions"), values_of(episodes, "reward")
    return {
        OVERALL: correlation(asked, rewards),
        WITHIN: correlation(_centred(asked, places), _centred(rewards, places)),
    }


def difference(run: Run, measure: str) -> Estimate:
    """The mean at the end less that at the beginning, of two independent samples, with a normal interval."""
    before, after = values_of(run.beginning, measure), values_of(run.end, measure)
    mean, num = fmean(after) - fmean(before), len(before) + len(after)
    if len(run.steps) < 2 or min(len(before), len(after)) < 2:
        return Estimate(mean, math.nan, math.nan, num)
    half = Z_95 * math.sqrt(_variance(before) / len(before) + _variance(after) / len(after))
    return Estimate(mean, mean - half, mean + half, num)


def verdict(change: Estimate) -> str:
    """What a difference says about the questions."""
    if math.isnan(change.low):
        return "too little to say"
    if change.low > 0:
        return "asks more"
    return "asks less" if change.high < 0 else "no clear change"


def main(argv: Sequence[str] | None = None, description: str | None = __doc__) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = "the directory of a run; of several, if they are seeds of one recipe"
    parser.add_argument("--log_dir", "--log-dir", type=Path, nargs="+", required=True, help=runs)
    parser.add_argument("--output_dir", "--output-dir", type=Path, required=True, help="where to write")
    arguments = parser.parse_args(argv)
    try:
        print("\n".join(map(str, analyze(arguments.log_dir, arguments.output_dir))))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _centred(values: Sequence[float], places: Sequence[Hashable]) -> list[float]:
    groups: dict[Hashable, list[float]] = {}
    for value, place in zip(values, places, strict=True):
        groups.setdefault(place, []).append(value)
    means = {place: fmean(group) for place, group in groups.items()}
    return [value - means[place] for value, place in zip(values, places, strict=True)]


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _summary(runs: Sequence[Run], found: dict[str, Estimate]) -> dict[str, Any]:
    return {
        "correlation_of_questions_and_reward": {name: _plain(one) for name, one in found.items()},
        "runs": [
            {
                "name": run.name,
                "num_games": len(run.episodes),
                "num_failed": run.num_failed,
                "num_of_other_environments": run.num_others,
                "steps": [run.steps[0], run.steps[-1]],
                "verdict": verdict(difference(run, "questions")),
                "measures": {measure: _measured(run, measure) for measure in MEASURES},
            }
            for run in runs
        ],
    }


def _measured(run: Run, measure: str) -> dict[str, Any]:
    return {
        "beginning": _plain(estimate_mean(values_of(run.beginning, measure))),
        "end": _plain(estimate_mean(values_of(run.end, measure))),
        "difference": _plain(difference(run, measure)),
    }


def _plain(estimate: Estimate) -> dict[str, float | int | None]:
    """For JSON, which has no nan."""
    numbers = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return {name: None if math.isnan(value) else value for name, value in numbers.items()} | {"num": estimate.num}


def _report(runs: Sequence[Run], found: dict[str, Estimate]) -> list[str]:
    lines = ["# Questions over training", ""]
    lines += ["Means per game with 95% intervals. Beginning and end: the first and the last fifth of the steps.", ""]
    for run in runs:
        lines += [f"## {run.name}: {verdict(difference(run, 'questions'))}", "", _left_out(run), ""]
        lines += ["| | beginning | end | difference |", "|---|---|---|---|"]
        for measure in MEASURES:
            ends = (estimate_mean(values_of(games, measure)) for games in (run.beginning, run.end))
            cells = [_cell(one) for one in (*ends, difference(run, measure))]
            lines.append(f"| {LABELS[measure]} | {' | '.join(cells)} |")
        lines.append("")
    lines += ["## Questions and reward", "", "Pearson's correlation over games, taken as independent:", ""]
    lines += [f"- {name}: {_cell(one)}, {one.num} games" for name, one in found.items()]
    return lines


def _left_out(run: Run) -> str:
    left_out = [
        f"{num} {what}" for num, what in ((run.num_failed, "failed"), (run.num_others, "of other environments")) if num
    ]
    return f"{len(run.episodes)} games, steps {run.steps[0]} to {run.steps[-1]}" + (
        f"; left out: {', '.join(left_out)}." if left_out else "."
    )


def _cell(estimate: Estimate) -> str:
    if math.isnan(estimate.mean):
        return "none: one of the two does not vary"
    return f"{estimate.mean:.3f} ({estimate.interval})"
