"""The watch over a run: it is shown the metrics of each step, and raises an alarm where a detector finds a fault.

An alarm is raised once, with the step at which the fault began, and again only after it has been away for
`CLEAR` looks. All of that follows from the metrics, so a resumed run is where it was once it has been shown those of
the steps before.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from slimrl.config.monitors import MonitorsConfig
from slimrl.errors import UserError
from slimrl.io.files import LineFile, without_nan
from slimrl.monitor.health.catalogue import MONITORS, HealthMonitor
from slimrl.monitor.health.finding import Finding
from slimrl.monitor.health.history import History
from slimrl.types import Metrics

FILE = "monitors.jsonl"
CLEAR = 8  # looks in a row without a fault, after which an alarm may be raised again; more than a mean has steps


class HealthStopError(UserError):
    """The end of a run by an alarm of a monitor that `monitors.stop` names."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm, as a line of `monitors.jsonl` has it. `onset` is the first step of the fault, `step` the one at which
    it was raised, and `metric` the name of what has the `value`."""

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
    """The state of a monitor: whether its alarm is raised, how many looks in a row spoke against that, and the latest
    finding with its step."""

    monitor: HealthMonitor
    is_raised: bool = False
    streak: int = 0
    onset: int = 0
    latest: Finding | None = None
    latest_step: int = 0

    def look(self, step: int, finding: Finding | None) -> Alarm | None:
        """Take what the detector found. Returns the alarm that is raised by it."""
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
        return self._alarm(step, finding) if finding.is_bad else None

    def _alarm(self, step: int, finding: Finding) -> Alarm:
        one = self.monitor
        return Alarm(
            step, self.onset, one.name, finding.metric, finding.value, one.healthy, one.cause, one.knob, finding.message
        )


class Health:
    """The monitors that are not off, and what they have seen. One that breaks is off from then on, with a word."""

    def __init__(self, config: MonitorsConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._history = History()
        self.watched = [Watched(monitor) for monitor in MONITORS if monitor.name not in config.off]

    def look(self, step: int, metrics: Mapping[str, float]) -> list[Alarm]:
        """Take the metrics of a step. Returns the alarms that they raise."""
        self._history.add(metrics)
        looks = [one.look(step, self._detect(one)) for one in [*self.watched]]
        return [alarm for alarm in looks if alarm]

    def _detect(self, one: Watched) -> Finding | None:
        try:
            return one.monitor.look(self._history, self._config)
        except Exception as error:  # an environment's metrics may be any numbers, and a monitor must not end a run
            self.watched.remove(one)
            self._say(
                f"the monitor {one.monitor.name} is off from now on, as it broke: {type(error).__name__}: {error}. "
                "That is a fault of slimrl; the run goes on."
            )
            return None

    @property
    def num_raised(self) -> int:
        """How many alarms stand now."""
        return sum(one.is_raised for one in self.watched)


class HealthWatch:
    """The watch over a run's metrics (`monitor/sinks.py`). It adds the number of alarms to them, writes alarms to
    `monitors.jsonl` and the log, and ends the run where the settings ask for that."""

    def __init__(
        self, config: MonitorsConfig, path: Path, past: Iterable[tuple[int, Metrics]], say: Callable[[str], None]
    ) -> None:
        """Continue after the `past` lines of metrics, whose alarms are written again and not logged."""
        self._health, self._say, self._stop = Health(config, say), say, config.stop
        self._new: list[Alarm] = []
        self._file = LineFile(path)
        for step, metrics in past:
            self._record(self._health.look(step, metrics))

    def observe(self, step: int, metrics: Mapping[str, float]) -> Metrics:
        """Look at the metrics of a step before they are written. Returns what is to be written with them."""
        self._new = self._health.look(step, metrics)
        return {"monitor/alarms": float(self._health.num_raised)}

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write and log the alarms of the metrics that were observed last. Raises HealthStopError if one of them is to
        end the run."""
        self._record(self._new)
        for alarm in self._new:
            self._say(describe(alarm))
        for alarm in self._new:
            if alarm.monitor in self._stop:
                raise HealthStopError(
                    f'the monitor "{alarm.monitor}" ends the run at step {alarm.step + 1}, as monitors.stop asks: '
                    f"{alarm.message}. Likely {alarm.cause}. Try: {alarm.knob}. `--resume` continues from the last "
                    'checkpoint; with `--monitors.stop "[]"` the run goes on whatever is raised.'
                )

    def _record(self, alarms: Iterable[Alarm]) -> None:
        for alarm in alarms:
            self._file.append(without_nan(asdict(alarm)))

    def close(self, failed: bool = False) -> None:
        """Close the file."""
        self._file.close()


def describe(alarm: Alarm) -> str:
    """The alarm as a line of the console, where steps count from 1."""
    since = f", since step {alarm.onset + 1}" if alarm.onset < alarm.step else ""
    head = f"alarm, step {alarm.step + 1}: {alarm.monitor}"
    return f"{head}: {alarm.message}{since}. Likely {alarm.cause}. Try: {alarm.knob}"
