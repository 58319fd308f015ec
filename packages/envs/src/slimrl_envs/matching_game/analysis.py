"""Measures whether a policy learns to ask questions. Plots the questions in recorded games over training, and writes
`report.md`. `scripts/analyze_questions.py` runs this module.

The main measure of a training run is the number of different questions before the first proposal. It is undefined for
games without a proposal. The number of questions in the whole game is a worse measure, because a shy partner demands
more questions after each rejection. A group consists of the games of one task in one training step. In the statistics
of one run, a group is one unit. In the statistics of several runs, a run is one unit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, takewhile
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure

from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.io.run_dir import RunDir
from slimrl.models.chat.thoughts import without_thoughts
from slimrl.monitor.plots import BLUE, FEW, GREEN, INK, ORANGE, save_figure, style_axes
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.series import smooth
from slimrl.stats import Estimate, correlation, difference_of_means, estimate_mean, mean_of_few
from slimrl.types import Rollout
from slimrl_envs.matching_game.rules.language import count_questions
from slimrl_envs.matching_game.rules.protocol import split_tag

ASKED = "before"  # the main measure of a run
MEASURES = {
    ASKED: "different questions before the first proposal",
    "proposed": "games with a proposal",
    "distinct": "different questions",
    "questions": "questions",
    "marks": "question marks",
    "words": "sentences that open with a question word",
    "score_seeking": "questions that seek a score",
    "turns": "turns",
    "reward": "reward",
}
DRAWN = (ASKED, "distinct", "score_seeking", "reward")
GAME_METRICS = {"agreed", "distinct_questions", "messages", "own_view", "questions"}  # no other environment has all
SHARE = 5  # the beginning is the first fifth of the training steps, and the end is the last fifth
NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class Game:
    """A finished game of the policy, with its `MEASURES` by name in `values`. `role` is empty except in self-play."""

    step: int
    task_id: str
    role: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """The finished games of a training run. `num_left_out` counts the other rollouts: failed games, and rollouts of
    other environments."""

    name: str
    games: tuple[Game, ...]
    num_left_out: int


def analyze(log_dirs: Sequence[Path], output_dir: Path) -> list[Path]:
    """Write a picture and a report about one or several runs, and return the paths. Raises UserError if a run is
    missing, or has no finished game."""
    runs = [read_run(log_dir) for log_dir in log_dirs]
    report = output_dir / "report.md"
    replace_file(report, ["\n".join(_report(runs)).encode(), b"\n"])
    return [save_figure(draw(runs), output_dir / "over_training.png"), report]


def read_run(log_dir: Path) -> Run:
    """Read the games in `log_dir/rollouts`. Raises UserError if there are none."""
    games, num_left_out = list[Game](), 0
    for step, (path, *_) in RunDir(log_dir).rollout_files().items():
        for rollout in [record.rollout for record in read_rollouts(path)] if path.suffix == ".jsonl" else ():
            is_game = rollout.metrics.keys() >= GAME_METRICS
            if is_game and not rollout.failure and math.isfinite(rollout.reward):
                games.append(Game(step, rollout.task_id, rollout.role, measure_game(rollout)))
            else:
                num_left_out += 1
    if not games:
        raise UserError(
            f"{log_dir} has no finished game in rollouts/step_*.jsonl: {num_left_out} rollouts failed, or are not of "
            "`matching-game`. Give `--log_dir` the output_dir of a run of `rl`."
        )
    return Run(log_dir.resolve().name, tuple(games), num_left_out)


def measure_game(rollout: Rollout) -> dict[str, float]:
    """Return the `MEASURES` of a game by name. `distinct` and `questions` are the environment's counts over legal
    messages. `marks`, `words` and `score_seeking` are counted over all replies with the message tag, legal or not."""
    replies = [message["content"] for message in rollout.messages if message["role"] == "assistant"]
    counts = count_questions(text for kind, text in _acts(replies) if kind == "message")
    before = count_questions_before_proposal(replies)
    return {
        **({} if before is None else {ASKED: before}),
        "proposed": float(before is not None),
        "distinct": float(rollout.metrics["distinct_questions"]),
        "questions": float(rollout.metrics["questions"]),
        "marks": counts.question_marks,
        "words": counts.words,
        "score_seeking": counts.score_seeking,
        "turns": len(replies),
        "reward": rollout.reward,
    }


def count_questions_before_proposal(replies: Sequence[str]) -> int | None:
    """Return the number of different questions before the first proposal; None without a proposal."""
    acts = _acts(replies)
    before = [*takewhile(lambda act: act[0] != "propose", acts)]
    asked = count_questions(text for kind, text in before if kind == "message").distinct
    return asked if len(before) < len(acts) else None


def _acts(replies: Sequence[str]) -> list[tuple[str, str]]:
    return [split_tag(without_thoughts(reply)) for reply in replies]


def group_games(games: Sequence[Game]) -> list[list[Game]]:
    """Return the games in groups. A group has the games of one task and role in one training step. The games of a group
    share the table and the partner, so they are not independent."""
    groups: dict[tuple[int, str, str], list[Game]] = {}
    for game in games:
        groups.setdefault((game.step, game.task_id, game.role), []).append(game)
    return list(groups.values())


def group_means(games: Sequence[Game], measure: str) -> list[float]:
    """Return the mean of a measure for each group in which at least one game has the measure."""
    groups = ([game.values[measure] for game in group if measure in game.values] for group in group_games(games))
    return [fmean(values) for values in groups if values]


def compare_ends(run: Run, measure: str) -> tuple[Estimate, Estimate, Estimate]:
    """Return three estimates of a measure: its mean over the groups of the first fifth of the training steps, its mean
    over the groups of the last fifth, and the difference of the two means.

    An estimate is nan if no game has the measure. The difference is also nan if there is only one step.
    """
    steps = sorted({game.step for game in run.games})
    num = max(1, len(steps) // SHARE)
    parts = (steps[:num], steps[-num:])
    early, late = (group_means([game for game in run.games if game.step in part], measure) for part in parts)
    beginning, end = (estimate_mean(means) if means else NOTHING for means in (early, late))
    is_known = early and late and len(steps) > 1
    return beginning, end, difference_of_means(late, early) if is_known else NOTHING


def correlate(runs: Sequence[Run]) -> Estimate:
    """Return the correlation within groups of the number of questions before the first proposal with the reward.

    Two quantities that both grow during training are correlated even if they are otherwise unrelated. To remove this
    effect, the group's mean is subtracted from both quantities. The interval is slightly too narrow, since the games of
    a group are treated as independent.
    """
    groups = [group for run in runs for group in group_games([game for game in run.games if ASKED in game.values])]
    centred = ([value for group in groups for value in _centred(group, name)] for name in (ASKED, "reward"))
    return correlation(*centred) if groups else NOTHING


def _centred(group: Sequence[Game], measure: str) -> list[float]:
    values = [game.values[measure] for game in group]
    # Equal values give exactly 0, without a rounding error.
    return [value - fmean(values) if len(set(values)) > 1 else 0.0 for value in values]


def draw(runs: Sequence[Run]) -> Figure:
    """Return a figure of the means per game over training: points for the steps of each run, and a smoothed line."""
    figure = Figure(figsize=(8.4, 6.2), layout="constrained")
    for measure, axes in zip(DRAWN, figure.subplots(2, 2).flat, strict=True):
        for run, colour in zip(runs, cycle((BLUE, ORANGE, GREEN)), strict=False):
            at: dict[int, list[float]] = {}
            for game in run.games:
                if measure in game.values:
                    at.setdefault(game.step, []).append(game.values[measure])
            means = np.array([fmean(values) for values in at.values()])
            axes.plot([*at], means, color=colour, linewidth=0, alpha=0.45, marker="o", markersize=3)
            line = smooth(means) if len(means) >= FEW else means
            axes.plot([*at], line, color=colour, linewidth=1.8, label=run.name)
        style_axes(axes)
        axes.set_ylim(0, 1.02 if measure == "reward" else max(1.0, axes.get_ylim()[1]))
        axes.set_title(f"{MEASURES[measure]}, a game", loc="left", fontsize=9.5, color=INK)
    figure.suptitle("Questions in the matching game over training", fontsize=11, fontweight="bold", color=INK)
    figure.legend(*axes.get_legend_handles_labels(), frameon=False, fontsize=8.5, ncols=4, loc="outside lower center")
    return figure


def _report(runs: Sequence[Run]) -> list[str]:
    changes = [compare_ends(run, ASKED)[-1] for run in runs]
    if len(changes) > 1:  # the mean of the runs' changes, with Student's interval
        is_known = not any(math.isnan(change.mean) for change in changes)
        changes = [mean_of_few([change.mean for change in changes]) if is_known else NOTHING]
    units = "groups" if len(runs) == 1 else f"{len(runs)} runs"
    found = correlate(runs)
    lines = [
        "# Questions over training",
        "",
        f"Different questions before the first proposal, end less beginning: {_cell(changes[0])}, {units} as units. "
        f"Their correlation with the reward within groups: {_cell(found)}, n = {found.num}.",
        "",
        "Beginning and end are the first and the last fifth of the steps. Means per game with 95% intervals, in which "
        "a group (the games of one task in one step) counts once. Questions of a whole game come of losing too: the "
        "partner wants to be asked after each rejection. Games without a proposal do not count above.",
    ]
    for run in runs:
        lines += ["", f"## {run.name}", "", f"{len(run.games)} games; {run.num_left_out} rollouts left out.", ""]
        lines += ["| | beginning | end | difference |", "|---|---|---|---|"]
        for name, label in MEASURES.items():
            lines.append(f"| {label} | {' | '.join(map(_cell, compare_ends(run, name)))} |")
    return lines


def _cell(estimate: Estimate) -> str:
    if math.isnan(estimate.mean):
        return "none: too few games have it, or it does not vary"
    return f"{estimate.mean:.3f} ({estimate.interval})"
