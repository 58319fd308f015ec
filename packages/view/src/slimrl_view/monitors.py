"""Reads the current state of a run's monitors from its metrics: the latest value and the bounds of each monitor."""

import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slimrl.config.monitors import BOUNDS, MonitorsConfig
from slimrl.io.run_dir import RunDir
from slimrl.monitor.health.catalogue import MONITORS, HealthMonitor
from slimrl.monitor.health.health import Health, Watched
from slimrl_view.about import Settings
from slimrl_view.curves import Growing

Json = dict[str, Any]


class Monitors:
    """The current state of a run's monitors, from its metrics and the bounds in its settings."""

    def __init__(self, run: Path) -> None:
        self._config = _config(run)
        self._health = Growing(RunDir(run).metrics, lambda: Health(self._config), _look)

    def all(self) -> list[Json]:
        """Return every monitor with its bounds and its latest value. The value is None if there is none yet."""
        with self._health.read() as health:
            watched = {one.monitor.name: one for one in health.watched}
            return [self._describe(monitor, watched.get(monitor.name)) for monitor in MONITORS]

    def _describe(self, monitor: HealthMonitor, watched: Watched | None) -> Json:
        latest = watched.latest if watched else None
        bounds = {name: bound for name, bound in self._config if BOUNDS.get(name) == monitor.name}
        return {
            "monitor": monitor.name,
            "meaning": monitor.meaning,
            "healthy": monitor.healthy,
            "off": watched is None or not self._config.enabled,
            "raised": watched is not None and watched.is_raised,
            "metric": latest.metric if latest else "",
            "value": latest.value if latest else None,
            "step": watched.latest_step if watched and latest else None,
            "bounds": [[name, bound] for name, bound in bounds.items() if isinstance(bound, float)],
        }


def _config(run: Path) -> MonitorsConfig:
    """Return the settings of a run's monitors, without those that an earlier version had."""
    given = Settings(run).get("monitors") or {}
    try:
        return MonitorsConfig.model_validate(
            {name: given[name] for name in MonitorsConfig.model_fields if name in given}
        )
    except (TypeError, ValidationError):
        return MonitorsConfig()


def _look(health: Health, record: Json) -> None:
    if isinstance(step := record.get("step"), int):
        health.look(step, _numbers(record))


def _numbers(record: Json) -> dict[str, float]:
    found = {name: value for name, value in record.items() if "/" in name and name != "monitor/alarms"}
    return {name: math.nan if value is None else float(value) for name, value in found.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and abs(value) < 1e300)
