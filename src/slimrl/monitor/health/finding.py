"""What a detector finds when it looks at a run."""

from collections.abc import Callable
from dataclasses import dataclass

from slimrl.config.monitors import MonitorsConfig
from slimrl.monitor.health.history import History


@dataclass(frozen=True, slots=True)
class Finding:
    """What a detector has found: a metric, its value, whether that is bad, and the words for it if so."""

    metric: str
    value: float
    is_bad: bool
    message: str


Detector = Callable[[History, MonitorsConfig], Finding | None]
"""A pure function of the run so far and the bounds. It gives None where it cannot tell, as the latest metrics lack what
it looks at or too few steps are known."""


def worst(findings: list[Finding | None]) -> Finding | None:
    """The first bad finding, else the first of all; None if there is none."""
    known = [finding for finding in findings if finding]
    return next((finding for finding in known if finding.is_bad), known[0] if known else None)
