"""The result of a look at a run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import History


@dataclass(frozen=True, slots=True)
class Detection:
    """The finding of a detector: a metric, its value, a flag if it is bad, and then the message for it."""

    metric: str
    value: float
    is_bad: bool
    message: str


Detector = Callable[[History, MonitorsConfig], Iterable[Detection]]
"""A pure function of the run so far and the bounds. It has no findings if the latest step lacks its metrics, or too few
steps are known."""
