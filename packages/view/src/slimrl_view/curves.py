"""Reads a run's growing files of JSON lines, such as its metrics, and makes the registry of metrics for the page."""

import math
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from slimrl.errors import UserError
from slimrl.io.files import parse_object
from slimrl.io.regular_file import open_regular
from slimrl.io.run_dir import RunDir
from slimrl.monitor.metrics import GROUPS, METRICS, Metric
from slimrl.monitor.panels import PANELS, Panel

Value = TypeVar("Value")
Json = dict[str, Any]
COUNTS = ("rollouts", "tokens", "turns", "versions", "version", "alarms", "tokens/s", "s", "GB", "ratio", "nats/token")
# The smallest and the largest possible value of a metric, keyed by its unit or by its name; None without a limit.
POSSIBLE: dict[str, tuple[float | None, float | None]] = {
    "share": (0.0, 1.0),
    "correlation": (-1.0, 1.0),
    **dict.fromkeys(COUNTS, (0.0, None)),
    "loss/value_explained": (None, 1.0),
    "monitor/task_dependence": (-1.0, 1.0),
}
WARM_UP = "sft/"  # prefix of the metrics that only a warm-up has
REWARD = Panel("reward", ("reward/mean", "held_out/reward_greedy", "held_out/reward_sampled"))


class Growing(Generic[Value]):
    """A value that is computed from the JSON objects in a growing file. Lines without a JSON object are ignored.

    `make` returns the value of an empty file, and `add` adds an object to a value. An incomplete last line is read when
    it is complete. If the file was replaced or has become shorter, as after a resume, it is read again from its start.
    """

    def __init__(self, path: Path, make: Callable[[], Value], add: Callable[[Value, Json], object]) -> None:
        self._path, self._make, self._add = path, make, add
        self._value, self._inode, self._end = make(), 0, 0
        self._lock = Lock()

    @contextmanager
    def read(self) -> Iterator[Value]:
        """Context manager: read the new lines of the file, and yield the value. It does not change during the block."""
        with self._lock:
            with suppress(OSError, UserError):
                self._read_on()
            yield self._value

    def _read_on(self) -> None:
        status = self._path.stat() if self._path.exists() else None
        inode, size = (status.st_ino, status.st_size) if status else (0, 0)
        if inode != self._inode or size < self._end:
            self._value, self._inode, self._end = self._make(), inode, 0
        if size == self._end:
            return
        with open_regular(self._path) as file:
            file.seek(self._end)
            lines, end, _ = file.read().rpartition(b"\n")
        self._end += len(lines) + len(end)
        for line in lines.split(b"\n"):
            with suppress(ValueError):
                self._add(self._value, parse_object(line))


class _Series:
    def __init__(self) -> None:
        self.num_lines = 0
        self.last_step: int | None = None
        self.values: dict[str, tuple[array[int], array[float]]] = {}

    def add(self, record: Json) -> None:
        self.num_lines += 1
        step = record.get("step")
        if not isinstance(step, int) or not -(2**62) < step < 2**62:
            return
        self.last_step = step if self.last_step is None else max(step, self.last_step)
        for name, value in record.items():
            if "/" in name and (value is None or isinstance(value, int | float)):
                steps, values = self.values.setdefault(name, (array("q"), array("d")))
                steps.append(step)
                values.append(_float(value))


class Curves:
    """The metrics of a run, and the supervised metrics of its warm-up."""

    def __init__(self, run: Path) -> None:
        files = RunDir(run)
        paths = files.metrics, files.warmup.metrics
        self._own, self._warm_up = (Growing(path, _Series, _Series.add) for path in paths)

    def num_lines(self) -> int:
        """Return the current number of lines of metrics, including the warm-up's lines."""
        with self._own.read() as own, self._warm_up.read() as warm_up:
            return own.num_lines + warm_up.num_lines

    def last_step(self) -> int | None:
        """Return the last step that has metrics, or None."""
        with self._own.read() as own:
            return own.last_step

    def since(self, step: int | None) -> Json:
        """Return the training steps and values of every metric from `step` on; None means all steps. If a step has
        several values, only the last one is returned."""
        with self._own.read() as own, self._warm_up.read() as warm_up:
            first = {name: values for name, values in warm_up.values.items() if name.startswith(WARM_UP)}
            series: dict[str, list[list[float | None]]] = {}
            for name, (steps, values) in (first | own.values).items():
                found = {at: value for at, value in zip(steps, values, strict=True) if step is None or at >= step}
                if found:
                    series[name] = [
                        [at, value if math.isfinite(value) else None] for at, value in sorted(found.items())
                    ]
            return {"series": series, "last_step": own.last_step}


def registry() -> Json:
    """Return the registry of metrics, the meanings of its groups, and the panels of the page."""
    return {
        "metrics": [_describe(metric) for metric in METRICS],
        "groups": dict(GROUPS),
        "panels": [{"title": one.title, "names": list(one.names), "log": one.log} for one in (REWARD, *PANELS)],
    }


def _describe(metric: Metric) -> Json:
    least, most = POSSIBLE.get(metric.name, POSSIBLE.get(metric.unit, (None, None)))
    return {**asdict(metric), "least": least, "most": most}


def _float(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan
