"""Defines the history of a run's metrics, with means over recent and earlier steps, and the findings of detectors."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slimrl.config.monitors import MonitorsConfig
from slimrl.types import Metrics

WINDOW = 20  # steps between the recent mean and the earlier mean
NUM = 3  # steps in a mean, so that one unusual step raises no alarm


class History:
    """The finite values of each metric in the order of steps, and all metrics of the latest step.

    >>> history = History()
    >>> for value in (4.0, 4.0, 4.0, 1.0, 1.0, 1.0):
    ...     history.add({"loss/entropy": value})
    >>> history.now("loss/entropy"), history.before("loss/entropy")
    (1.0, 4.0)
    """

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}
        self.row: Metrics = {}
        self.lowest, self.highest = math.inf, -math.inf  # of all training rewards so far

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step."""
        self.row = {name: value for name, value in metrics.items() if math.isfinite(value)}
        for name, value in self.row.items():
            self._values.setdefault(name, []).append(value)
        self.lowest = min(self.lowest, self.row.get("reward/min", math.inf))
        self.highest = max(self.highest, self.row.get("reward/max", -math.inf))

    def values(self, name: str) -> Sequence[float]:
        """Return all values of a metric."""
        return self._values.get(name, ())

    def has(self, name: str, least: int) -> bool:
        """Return True if the latest step has the metric, and the history has at least `least` values of it."""
        return name in self.row and self.num(name) >= least

    def num(self, name: str) -> int:
        """Return the number of steps that have had the metric."""
        return len(self.values(name))

    def now(self, name: str, num: int = NUM) -> float:
        """Return the mean of a metric's last `num` values."""
        return _mean(self.values(name)[-num:])

    def first(self, name: str, num: int = NUM) -> float:
        """Return the mean of a metric's first `num` values."""
        return _mean(self.values(name)[:num])

    def before(self, name: str, num: int = NUM) -> float:
        """Return the mean of `num` values that are `WINDOW` places before the values of `now`. If the history is
        shorter, use the first `num` values."""
        values = self.values(name)
        start = max(0, len(values) - num - WINDOW)
        return _mean(values[start : start + num])

    @property
    def reward_range(self) -> float:
        """The difference between the best and the worst training reward so far."""
        return max(0.0, self.highest - self.lowest) if self.num("reward/mean") else 0.0

    @property
    def is_solved(self) -> bool:
        """True if the mean reward is near the best reward so far. In this case low variety is not a fault."""
        return self.reward_range > 0.0 and self.highest - self.now("reward/mean") <= 0.1 * self.reward_range

    def has_risen(self, since_start: bool = False) -> bool:
        """Return True if the mean reward has risen by at least a tenth of `reward_range`, within `WINDOW` steps or
        since the start."""
        then = self.first("reward/mean") if since_start else self.before("reward/mean")
        return self.reward_range > 0.0 and self.now("reward/mean") - then >= 0.1 * self.reward_range


@dataclass(frozen=True, slots=True)
class Detection:
    """The finding of a detector about the value of a metric. `message` is shown if the value is bad."""

    metric: str
    value: float
    is_bad: bool
    message: str


Detector = Callable[[History, MonitorsConfig], Iterable[Detection]]
"""A pure function from the history and the bounds to findings. It returns no findings if the latest step lacks the
metrics, or if the history is too short."""


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values) if values else math.nan
    except OverflowError:  # finite values near the largest number
        return math.nan
