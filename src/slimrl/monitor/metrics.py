"""The registry of all metrics. It has the meaning, the unit and the healthy values of each metric.

A metric's name is `group/name`. A new metric needs a line in `metrics.csv`; logging an unregistered name is an error. A
name with `<...>` at its end means all names with this prefix. After a change, run `python -m tests.monitor.pages >
docs/metrics.md` to render the page from the table. A test checks that the page is up to date.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from slimrl.errors import nearest

Better = Literal["higher", "lower", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. `better` is empty if neither a higher nor a lower value is better. `low` and `high` are the bounds of
    healthy values, if the text `healthy` has bounds that are valid for every run."""

    name: str
    meaning: str
    unit: str
    better: Better
    healthy: str
    low: float | None = None
    high: float | None = None

    @property
    def group(self) -> str:
        """The part before the slash."""
        return self.name.partition("/")[0]

    @property
    def prefix(self) -> str:
        """The part of the name before a final `<...>`; empty for other names."""
        return self.name.partition("<")[0] if self.name.endswith(">") else ""


GROUPS = {
    "reward": "The training reward, over the rollouts of the step that have one.",
    "rollout": "The rollouts of the step.",
    "drop": "Rollouts that were not trained on, by reason. Summed over all steps so far: rollout/started = "
    "rollout/num_trained + drop/ + async/waiting + async/in_flight, the last two of the newest step.",
    "async": "How far apart sampling and training are. The age of a group of rollouts is the number of versions from "
    "the one at which it began to the one that it trains.",
    "env": "Metrics that the environments report about their episodes.",
    "tools": "Calls of tools in the chat template's format, by the form in which the policy wrote them.",
    "loss": "The training objective. Means are over the tokens of the loss mask.",
    "distill": "Distillation: log-probabilities that teacher and student give to the tokens the student sampled.",
    "guard": "Agreement of sampler and trainer on the log-probabilities of the sampled tokens.",
    "monitor": "Numbers of the rollouts that the monitors of a run's health watch (docs/monitors.md).",
    "optim": "The optimizer.",
    "version": "The version of the weights.",
    "held_out": "Evaluation on held-out tasks, which are never trained on.",
    "sft": "Supervised fine-tuning, alone or as a warm-up before RL.",
    "perf": "Throughput and amount of computation.",
    "time": "Wall-clock time of the parts of a step.",
    "memory": "Memory.",
}


def _read_table() -> Iterator[Metric]:
    with Path(__file__).with_name("metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            low, high = (float(text) if text else None for text in (row.pop("low"), row.pop("high")))
            better: Any = row.pop("better")
            yield Metric(**row, better=better, low=low, high=high)


METRICS = tuple(_read_table())
_EXACT = {metric.name: metric for metric in METRICS if not metric.prefix}
# A full match excludes the bounds of the intervals (`_low` and `_high`).
_HELD_OUT_REWARD = re.compile(r"held_out/reward_(greedy|sampled(_[0-9.e+-]+)?)")
# Longest prefix first, so that `held_out/reward_sampled_<T>` is found before `held_out/<score>`.
_PREFIXED = sorted((metric for metric in METRICS if metric.prefix), key=lambda metric: -len(metric.prefix))


def lookup(name: str) -> Metric:
    """Return the registry's entry for a name. If no entry has this name, return the entry with the longest matching
    prefix.

    Raises:
        ValueError: if no entry matches. The message has the most similar registered name.
    """
    if name in _EXACT:
        return _EXACT[name]
    for metric in _PREFIXED:
        if name.startswith(metric.prefix) and name != metric.prefix:
            return metric
    known = [metric.name for metric in METRICS]
    raise ValueError(f"metric `{name}` is not registered in monitor/metrics.csv.{nearest(name, known)}")


def select_held_out_rewards(names: Iterable[str]) -> list[str]:
    """Return the names of the held-out mean rewards among `names`: one per decoding mode, without the bounds of the
    intervals."""
    return [name for name in names if _HELD_OUT_REWARD.fullmatch(name)]
