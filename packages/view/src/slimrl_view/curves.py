"""Reads a run's metrics and alarms as they grow, and the registry of metrics as the page shows it."""

import json
import math
from array import array
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from slimrl.errors import UserError
from slimrl.io.regular_file import open_regular
from slimrl.monitor.metrics import GROUPS, METRICS, Metric
from slimrl.monitor.panels import PANELS, Panel

Json = dict[str, Any]
COUNTS = ("rollouts", "tokens", "turns", "versions", "version", "alarms", "tokens/s", "s", "GB", "ratio", "nats/token")
# The least and the largest possible value of a metric, by its unit, or by its name where the unit does not decide.
POSSIBLE: dict[str, tuple[float | None, float | None]] = {
    "share": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
    **dict.fromkeys(COUNTS, (0.0, None)),
    "loss/value_explained": (None, 1.0),
    "monitor/task_dependence": (-1.0, 1.0),
}
MARK_BYTES = 64
WARM_UP = "sft/"  # the metrics of a warm-up that are no other's
REWARD = Panel("reward", ("reward/mean", "held_out/reward_greedy", "held_out/reward_sampled"))


class Lines:
    """The JSON objects of a growing file of lines. One that is replaced by another is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = self._done = 0
        self._mark = b""

    def new(self) -> tuple[list[Json], bool]:
        """The objects that have been added since the last call, and whether all of before are void. Lines that are no
        JSON objects are left out."""
        try:
            with open_regular(self.path) as file:
                inode = self.path.stat().st_ino
                begin = max(0, self._done - MARK_BYTES)
                file.seek(begin)
                content = file.readall()
        except (OSError, UserError):
            return [], self._forget()
        known = self._done - begin
        void = False
        if self._done and (inode != self._inode or content[:known] != self._mark):
            self._forget()
            return self.new()[0], True
        end = content.rfind(b"\n") + 1
        lines = content[known:end].splitlines() if end > known else []
        self._inode, self._done = inode, begin + max(end, known)
        self._mark = content[max(0, max(end, known) - MARK_BYTES) : max(end, known)]
        return [record for record in map(_object, lines) if record is not None], void

    def _forget(self) -> bool:
        """Read from the beginning next time; returns whether anything had been read."""
        had = bool(self._done)
        self._inode = self._done = 0
        self._mark = b""
        return had


class Curves:
    """The metrics of a run: its own, and the supervised ones of its warm-up."""

    def __init__(self, run: Path) -> None:
        self._files = [(Lines(run / "metrics.jsonl"), ""), (Lines(run / "warmup" / "metrics.jsonl"), WARM_UP)]
        self._series: list[dict[str, tuple[array[int], array[float]]]] = [{}, {}]
        self._nums = [0, 0]
        self._last_step: int | None = None
        self._lock = Lock()

    def num_lines(self) -> int:
        """How many lines of metrics there are by now, those of the warm-up too."""
        with self._lock:
            self._read()
            return sum(self._nums)

    def last_step(self) -> int | None:
        """The last step of which there are metrics; None if there are none."""
        with self._lock:
            self._read()
            return self._last_step

    def since(self, step: int | None) -> Json:
        """The points of every metric, each a step and a value, from a step on."""
        with self._lock:
            self._read()
            series: dict[str, list[list[float | None]]] = {}
            for one in reversed(self._series):  # the run's own come last, and count where both have a name
                for name, (steps, values) in one.items():
                    points = zip(steps, values, strict=True)
                    found = {at: value for at, value in points if step is None or at >= step}
                    if found:
                        series[name] = [[at, _finite(found[at])] for at in sorted(found)]
            return {"series": series, "last_step": self._last_step}

    def latest(self, name: str) -> float | None:
        """The newest value of a metric; None if it has none."""
        with self._lock:
            self._read()
            _, values = self._series[0].get(name, (None, array("d")))
            return values[-1] if values else None

    def _read(self) -> None:
        for number, (lines, prefix) in enumerate(self._files):
            records, void = lines.new()
            if void:
                self._series[number], self._nums[number] = {}, 0
                self._last_step = None if not prefix else self._last_step
            self._nums[number] += len(records)
            for record in records:
                self._add(self._series[number], record, prefix)

    def _add(self, series: dict[str, tuple["array[int]", "array[float]"]], record: Json, prefix: str) -> None:
        step = record.get("step")
        if not isinstance(step, int) or not -(2**62) < step < 2**62:
            return
        if not prefix:
            self._last_step = step if self._last_step is None else max(step, self._last_step)
        for name, value in record.items():
            if name.startswith(prefix) and "/" in name and (value is None or isinstance(value, int | float)):
                steps, values = series.setdefault(name, (array("q"), array("d")))
                steps.append(step)
                values.append(_float(value))


class Alarms:
    """The alarms of a run's monitors, from `monitors.jsonl`."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._alarms: list[Json] = []
        self._lock = Lock()

    def all(self) -> list[Json]:
        """All alarms by now."""
        with self._lock:
            new, void = self._lines.new()
            if void:
                self._alarms = []
            self._alarms += new
            return list(self._alarms)


def registry() -> Json:
    """The registry of metrics, what its groups are about, and the panels of the page."""
    return {
        "metrics": [_describe(metric) for metric in METRICS],
        "groups": dict(GROUPS),
        "panels": [{"title": one.title, "names": list(one.names), "log": one.log} for one in (REWARD, *PANELS)],
    }


def _describe(metric: Metric) -> Json:
    least, most = POSSIBLE.get(metric.name, POSSIBLE.get(metric.unit, (None, None)))
    return {**asdict(metric), "least": least, "most": most}


def _object(line: bytes) -> Json | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _float(value: float | None) -> float:
    """The value, and nan for None and for a whole number that is too large for a float."""
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
