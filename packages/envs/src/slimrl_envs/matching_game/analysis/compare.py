"""Does a policy learn to ask? Compares the beginning and the end of runs of the matching game, and relates questions to
reward. Writes pictures, `summary.json` and `report.md`; reads only the records of runs. The body of
`scripts/analyze_questions.py`.

The verdict goes by the different questions before the first proposal: a lost game is long, and the partner wants to be
asked after each rejection, so that in whole games losing makes questions. Games without a proposal have none such, and
are counted apart. Its unit is a group, the games of one task in one step, and for several runs a run.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from slimrl.errors import UserError, visible
from slimrl.io.files import replace_file
from slimrl.monitor.plots import save_figure
from slimrl.stats import Z_95, Estimate, correlation, difference_of_means, estimate_mean, mean_of_few
from slimrl_envs.matching_game.analysis.plots import draw_scatter, draw_training
from slimrl_envs.matching_game.analysis.runs import (
    MEASURES,
    Episode,
    Run,
    by_role,
    group_by_task,
    group_means,
    read_run,
    values_of,
    with_proposal,
)

ASKED = "before"  # the subject of the verdict
LABELS = {
    "before": "different questions before the first proposal",
    "proposed": "games with a proposal",
    "distinct": "different questions",
    "questions": "questions",
    "marks": "question marks",
    "words": "sentences that open with a question word",
    "score_seeking": "questions that seek a score",
    "turns": "turns",
    "reward": "reward",
}
OVERALL, WITHIN = "over group means", "within groups"
NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def analyze(log_dirs: Sequence[Path], output_dir: Path) -> list[Path]:
    """Write the pictures, the summary and the report of one or several runs, and return their paths. Raises UserError
    if a run is missing, has no finished game, or is given twice."""
    if len({log_dir.resolve() for log_dir in log_dirs}) < len(log_dirs):  # two seeds that agree in everything
        raise UserError("`--log_dir` has a run more than once; several runs are of several seeds. Give each once.")
    runs = [read_run(log_dir) for log_dir in log_dirs]
    found = correlations(runs)
    summary, report = output_dir / "summary.json", output_dir / "report.md"
    pictures = [
        save_figure(draw_training(runs, _in_words(joint_difference(runs, ASKED))), output_dir / "over_training.png"),
        save_figure(draw_scatter(runs, found), output_dir / "questions_and_reward.png"),
    ]
    replace_file(summary, [json.dumps(_summary(runs, found), indent=2, allow_nan=False).encode(), b"\n"])
    replace_file(report, ["\n".join(_report(runs, found)).encode(), b"\n"])
    return [*pictures, summary, report]


def correlations(runs: Sequence[Run]) -> dict[str, Estimate]:
    """The correlations of the questions before the first proposal with the reward, overall and within groups.

    The overall one is between the groups' means. Two quantities that both grow in training correlate for that alone, so
    within groups both are centred on the mean of their group. In self-play each role is a group of its own, since roles
    may ask more or less by nature; a game, whose reward both roles share, counts once.
    """
    asking = [with_proposal(run.episodes) for run in runs]
    if not any(asking):
        return dict.fromkeys((OVERALL, WITHIN), NOTHING)
    means = [[mean for episodes in asking for mean in group_means(episodes, measure)] for measure in (ASKED, "reward")]
    groups = [part for episodes in asking for group in group_by_task(episodes) for part in by_role(group)]
    inner = correlation(*(_center([values_of(group, measure) for group in groups]) for measure in (ASKED, "reward")))
    num_roles = len({episode.role for episodes in asking for episode in episodes})
    # The roles of a game share its reward, so that their pairs count once.
    return {
        OVERALL: correlation(*means),
        WITHIN: _with_fewer(inner, (inner.num - len(groups)) // num_roles),
    }


def difference(run: Run, measure: str) -> Estimate:
    """The mean of groups at the end less that at the beginning, which are independent; nothing of a single step."""
    before, after = group_means(run.early_games, measure), group_means(run.late_games, measure)
    if not before or not after or len(run.steps) < 2:
        return NOTHING
    return difference_of_means(after, before)


def joint_difference(runs: Sequence[Run], measure: str) -> Estimate:
    """The mean of the seeds' differences with Student's 95% interval, in which each seed is a unit."""
    if len(runs) == 1:
        return difference(runs[0], measure)
    each = [difference(run, measure).mean for run in runs]
    if any(map(math.isnan, each)):
        return NOTHING
    return mean_of_few(each)


def verdict(change: Estimate) -> str:
    """Return the verdict on a difference in questions. Without variation there is neither interval nor verdict."""
    if math.isnan(change.low):
        return "too little to say" if change.mean else "no clear change"
    if change.low > 0:
        return "asks more"
    return "asks less" if change.high < 0 else "no clear change"


def _in_words(change: Estimate) -> str:
    """The verdict as a verb, for a title."""
    said = verdict(change)
    return said if said.startswith("asks") else {"no clear change": "asks as before"}.get(said, "cannot be judged yet")


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
        print(visible(f"error: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run it again", file=sys.stderr)
        return 130
    return 0


def _center(groups: Sequence[Sequence[float]]) -> list[float]:
    """The differences of values from the mean of their group, exactly 0 where all are equal, despite rounding."""
    return [value - fmean(group) if len(set(group)) > 1 else 0.0 for group in groups for value in group]


def _with_fewer(found: Estimate, num: int) -> Estimate:
    """A correlation with the interval (Fisher's z) of `num` independent pairs: each group's mean takes one away."""
    if math.isnan(found.mean) or num < 4 or abs(found.mean) > 1 - 1e-12:
        low = high = math.nan if num < 4 else found.mean
        return Estimate(found.mean, low, high, num)
    # Fisher's z is nearly normal with a standard error of 1 / sqrt(n - 3).
    z, half = math.atanh(found.mean), Z_95 / math.sqrt(num - 3)
    return Estimate(found.mean, math.tanh(z - half), math.tanh(z + half), num)


def _summary(runs: Sequence[Run], found: dict[str, Estimate]) -> dict[str, Any]:
    return {
        "correlation_of_questions_and_reward": {name: _plain(one) for name, one in found.items()},
        "change_of_questions": {
            **_plain(joint_difference(runs, ASKED)),
            "verdict": verdict(joint_difference(runs, ASKED)),
        },
        "runs": [
            {
                "name": run.name,
                "start": run.start,
                "num_games": len(run.episodes),
                "num_failed": run.num_failed,
                "num_of_other_environments": run.num_others,
                "steps": [run.steps[0], run.steps[-1]],
                "verdict": verdict(difference(run, ASKED)),
                "measures": {measure: _measure(run, measure) for measure in MEASURES},
            }
            for run in runs
        ],
    }


def _measure(run: Run, measure: str) -> dict[str, Any]:
    return {
        "beginning": _plain(_mean(run.early_games, measure)),
        "end": _plain(_mean(run.late_games, measure)),
        "difference": _plain(difference(run, measure)),
    }


def _mean(games: Sequence[Episode], measure: str) -> Estimate:
    means = group_means(games, measure)
    return estimate_mean(means) if means else NOTHING


def _plain(estimate: Estimate) -> dict[str, float | int | None]:
    """For JSON, which has no nan."""
    numbers = {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
    return {name: None if math.isnan(value) else value for name, value in numbers.items()} | {"num": estimate.num}


def _report(runs: Sequence[Run], found: dict[str, Estimate]) -> list[str]:
    change = joint_difference(runs, ASKED)
    units = "groups" if len(runs) == 1 else f"{len(runs)} runs"
    lines = [
        f"# Questions over training: {verdict(change)}",
        "",
        f"Different questions before the first proposal, end less beginning: {_cell(change)}, {units} as units.",
        "",
        "Beginning and end are the first and the last fifth of the steps. Means per game with 95% intervals, in which "
        "a group (the games of one task in one step) counts once. Questions of a whole game come of losing too: the "
        "partner wants to be asked after each rejection. Games without a proposal do not count in the first line.",
        "",
    ]
    for run in runs:
        lines += [f"## {run.name}: {verdict(difference(run, ASKED))}", "", f"{_coverage(run)} It was {run.start}.", ""]
        lines += ["| | beginning | end | difference |", "|---|---|---|---|"]
        for measure in MEASURES:
            ends = (_mean(games, measure) for games in (run.early_games, run.late_games))
            cells = [_cell(one) for one in (*ends, difference(run, measure))]
            lines.append(f"| {LABELS[measure]} | {' | '.join(cells)} |")
        lines.append("")
    told = "Pearson's correlation of the different questions before the first proposal with the reward:"
    lines += ["## Questions and reward", "", told, ""]
    lines += [f"- {name}: {_cell(one)}, n = {one.num}" for name, one in found.items()]
    return lines


def _coverage(run: Run) -> str:
    left_out = [
        f"{num} {what}" for num, what in ((run.num_failed, "failed"), (run.num_others, "of other environments")) if num
    ]
    return f"{len(run.episodes)} games, steps {run.steps[0]} to {run.steps[-1]}" + (
        f"; left out: {', '.join(left_out)}." if left_out else "."
    )


def _cell(estimate: Estimate) -> str:
    if math.isnan(estimate.mean):
        return "none: too few games have it, or it does not vary"
    return f"{estimate.mean:.3f} ({estimate.interval})"
