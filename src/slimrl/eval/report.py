"""Tables of evaluations, for the terminal and as Markdown."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from slimrl.eval.compare import REWARD, Pair, compare_saved
from slimrl.eval.evaluate import Evaluation, reward_by_environment
from slimrl.eval.failures import FailureKind
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, for_terminal
from slimrl.stats import Estimate

# The most important scores are first; the rest follows by name.
FIRST = ("correct", "tool_calls", "right_page_first", "right_page", "invalid_calls", "turns", "tokens")


def scores_table(evaluations: Mapping[str, Evaluation]) -> Cells:
    """Return a table with a row for every score and a column for every evaluation. The keys are the columns' titles."""
    found = {name for evaluation in evaluations.values() for name in evaluation.scores}
    names = [*(name for name in FIRST if name in found), *sorted(found - set(FIRST))]
    rows = [("", *evaluations), ("episodes", *(str(e.reward.num) for e in evaluations.values()))]
    rows.append((REWARD, *(_estimate(e.reward) for e in evaluations.values())))
    rows += [(name, *(_estimate(e.scores.get(name)) for e in evaluations.values())) for name in names]
    dropped = [sum(e.failures.values()) for e in evaluations.values()]
    if any(dropped):
        rows.append(("dropped", *map(str, dropped)))
    return Cells("means, with 95% intervals", tuple(rows))


def environments_table(evaluations: Mapping[str, Evaluation]) -> Cells | None:
    """Return a table of the reward with a row for every environment and a row for all together. Return None if there is
    only one environment."""
    rewards = [reward_by_environment(evaluation) for evaluation in evaluations.values()]
    envs = dict.fromkeys(env for of_one in rewards for env in of_one)
    if len(envs) < 2:
        return None
    rows = [("", *evaluations), *((env, *(_estimate(of_one.get(env)) for of_one in rewards)) for env in envs)]
    rows.append(("all together", *(_estimate(evaluation.reward) for evaluation in evaluations.values())))
    return Cells("reward by environment, with 95% intervals", tuple(rows))


def pairs_table(first: str, second: str, pairs: Sequence[Pair]) -> Cells:
    """Return a table with a row for the reward, and a row for every score in which two policies differ on a task."""
    rows = [("", first, second, "difference", "95% interval", "more", "less", "p")]
    order = {name: place for place, name in enumerate((REWARD, *FIRST))}
    # With several environments, the environment's name follows the score's name.
    placed = [(order.get(pair.score.partition(", ")[0], len(order)), pair.score, pair) for pair in pairs]
    for _, _, pair in sorted(one for one in placed if one[0] == 0 or one[2].wins or one[2].losses):
        numbers = (f"{pair.first:.3f}", f"{pair.second:.3f}", f"{pair.difference.mean:+.3f}", pair.difference.interval)
        rows.append((pair.score, *numbers, str(pair.wins), str(pair.losses), f"{pair.p:.2g}"))
    return Cells(f"{first} against {second}, {pairs[0].difference.num} tasks one by one", tuple(rows))


def show_comparison(first: Path, second: Path) -> None:
    """Show the differences between two saved evaluations, the first minus the second, for each decoding mode."""
    console = RunConsole()
    for mode, pairs in compare_saved(first, second):
        console.note(mode, style="bold")
        console.show(for_terminal(pairs_table(str(first), str(second), pairs), console.is_live))


def failures_table(kinds: Mapping[str, Sequence[FailureKind]]) -> Cells | None:
    """Return a table with a row for every kind of failure and a column for every evaluation; None without failures."""
    if not any(kinds.values()):
        return None
    counts = {title: {kind.name: kind.num for kind in found} for title, found in kinds.items()}
    names = dict.fromkeys(name for of_one in counts.values() for name in of_one)
    rows = [("", *counts), *((name, *(str(of_one.get(name, 0)) for of_one in counts.values())) for name in names)]
    return Cells("failed episodes by kind", tuple(rows))


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if math.isnan(estimate.low):
        return f"{estimate.mean:.3g}"
    return f"{_short(estimate.mean)} ({_short(estimate.low)} to {_short(estimate.high)})"


def _short(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
