"""Checks the metrics of each step, and raises an alarm if a detector finds a fault.

An alarm is raised once for a fault. It can be raised again only after `CLEAR` findings in a row without the fault. The
alarms depend only on the metrics, so a resumed run restores their state from the metrics of the earlier steps.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from slimrl.config.monitors import MonitorsConfig
from slimrl.io.files import LineFile, without_nan
from slimrl.monitor.health.catalogue import MONITORS, HealthMonitor
from slimrl.monitor.health.history import Detection, History
from slimrl.types import Metrics

CLEAR = 8  # findings in a row without the fault before an alarm can be raised again; more than the values of a mean


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm, which is a line of `monitors.jsonl`. `onset` is the first step of the fault, and `step` is the step of
    the alarm. `metric` is the name of the faulty metric, and `value` is its value."""

    step: int
    onset: int
    monitor: str
    metric: str
    value: float
    healthy: str
    cause: str
    knob: str
    message: str


@dataclass(slots=True)
class Watched:
    """The state of a monitor. `streak` counts the findings in a row that contradict `is_raised`, and `onset` is the
    step of the first of these findings. `latest` is the last finding, and `latest_step` is its step."""

    monitor: HealthMonitor
    is_raised: bool = False
    streak: int = 0
    onset: int = 0
    latest: Detection | None = None
    latest_step: int = 0

    def look(self, step: int, finding: Detection | None) -> Alarm | None:
        """Update the state with the detector's finding of a step. Return an alarm if this finding raises it; otherwise
        return None."""
        if finding is None:
            return None
        self.latest, self.latest_step = finding, step
        if finding.is_bad == self.is_raised:
            self.streak = 0
            return None
        if self.streak == 0:
            self.onset = step
        self.streak += 1
        needed = CLEAR if self.is_raised else self.monitor.patience
        if self.streak < needed:
            return None
        self.is_raised, self.streak = finding.is_bad, 0
        if not finding.is_bad:
            return None
        one = self.monitor
        texts = one.healthy, one.cause, one.knob, finding.message
        return Alarm(step, self.onset, one.name, finding.metric, finding.value, *texts)


class Health:
    """The enabled monitors and the history of the metrics."""

    def __init__(self, config: MonitorsConfig) -> None:
        self._config, self._history = config, History()
        self.watched = [Watched(monitor) for monitor in MONITORS if monitor.name not in config.off]

    def look(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Add the metrics of a step to the history. Return the new alarms."""
        self._history.add(metrics)
        looks = [one.look(step, one.monitor.look(self._history, self._config)) for one in self.watched]
        return [alarm for alarm in looks if alarm]

    @property
    def num_raised(self) -> int:
        """The number of alarms that are currently raised."""
        return sum(one.is_raised for one in self.watched)


class HealthWatch:
    """Connects the monitors to a run. It receives the metrics before the sinks (`monitor/sinks.py`).

    It adds the number of raised alarms to the metrics, and writes alarms to `monitors.jsonl` and the log.
    """

    def __init__(
        self, config: MonitorsConfig, path: Path, past: Iterable[tuple[int, Metrics]], say: Callable[[str], None]
    ) -> None:
        """Restore the state from `past`, the metrics of earlier steps. Alarms of earlier steps are written to the file
        again, but not logged."""
        self._health, self._say = Health(config), say
        self._new: list[Alarm] = []
        self._file = LineFile(path)
        for step, metrics in past:
            self._record(self._health.look(step, metrics))

    def observe(self, step: int, metrics: Mapping[str, float]) -> Metrics:
        """Check the metrics of a step before they are written. Return the additional metric `monitor/alarms`."""
        self._new = self._health.look(step, metrics)
        return {"monitor/alarms": float(self._health.num_raised)}

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write and log the alarms of the last call of `observe`."""
        self._record(self._new)
        for alarm in self._new:
            self._say(describe(alarm))

    def _record(self, alarms: Iterable[Alarm]) -> None:
        for alarm in alarms:
            self._file.append(without_nan(asdict(alarm)))

    def close(self, failed: bool = False) -> None:
        """Close the file."""
        self._file.close()


def describe(alarm: Alarm) -> str:
    """Return the alarm as a line for the console. Steps are counted from 1."""
    since = f", since step {alarm.onset + 1}" if alarm.onset < alarm.step else ""
    head = f"alarm, step {alarm.step + 1}: {alarm.monitor}"
    return f"{head}: {alarm.message}{since}. Likely {alarm.cause}. Try: {alarm.knob}"
