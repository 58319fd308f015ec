"""Defines all monitors. Each has a detector, and texts for users from `monitors.csv`.

`python -m tests.monitor.pages monitors` renders the table of docs/monitors.md. A test checks that the table is up to
date.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.config.monitors import MONITOR_NAMES, MonitorName, MonitorsConfig
from slimrl.monitor.health import policy, rewards
from slimrl.monitor.health.history import Detection, Detector, History

DETECTORS: dict[str, Detector] = {
    "mismatch": policy.mismatch,
    "entropy_collapse": policy.entropy_collapse,
    "length": policy.length,
    "repetition": policy.repetition,
    "one_reply": policy.one_reply,
    "invalid_calls": policy.invalid_calls,
    "zero_signal": rewards.zero_signal,
    "judge": rewards.judge,
    "held_out_gap": rewards.gap_to_held_out,
    "reward_hacking": rewards.reward_hacking,
}


@dataclass(frozen=True, slots=True)
class HealthMonitor:
    """A monitor: the detector `detect`, and texts for users. The texts are the meaning, the healthy values, the likely
    cause of a fault, and the setting to change (`knob`). `patience` is the number of bad findings in a row before an
    alarm."""

    name: MonitorName
    meaning: str
    healthy: str
    cause: str
    knob: str
    detect: Detector
    patience: int

    def look(self, history: History, bounds: MonitorsConfig) -> Detection | None:
        """Return the detector's first bad finding. If no finding is bad, return the first finding, or None if there are
        no findings."""
        found = [*self.detect(history, bounds)]
        return next((finding for finding in found if finding.is_bad), found[0] if found else None)


def _read_table() -> Iterator[HealthMonitor]:
    with Path(__file__).with_name("monitors.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            texts: dict[str, Any] = row
            yield HealthMonitor(**{**texts, "patience": int(row["patience"])}, detect=DETECTORS[row["name"]])


MONITORS = tuple(_read_table())

assert tuple(monitor.name for monitor in MONITORS) == MONITOR_NAMES
