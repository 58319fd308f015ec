"""The monitors of a run's health, made from its settings, and the check of what only a first step can show."""

from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import UserError, nearest
from slimrl.launch.run_dir import METRICS
from slimrl.monitor.console import RunConsole
from slimrl.monitor.health.health import FILE, HealthWatch
from slimrl.monitor.health.measure import AUTO
from slimrl.monitor.sinks import read_metrics
from slimrl.types import Metrics


def open_watches(config: RLConfig, output_dir: Path, console: RunConsole, first: int) -> list[HealthWatch]:
    """The watch over a run that goes on from step `first`; none where the monitors are off."""
    if not config.monitors.enabled:
        return []
    path = output_dir / METRICS
    past = [line for line in read_metrics(path) if line[0] < first] if first and path.exists() else []

    def say(text: str) -> None:
        console.note(text, "bold red")

    return [HealthWatch(config.monitors, output_dir / FILE, past, say)]


def check_right_metric(config: RLConfig, metrics: Metrics) -> None:
    """Raise UserError if no environment reports the right answers that `monitors.right_metric` names."""
    name = config.monitors.right_metric
    if config.monitors.enabled and name != AUTO and "monitor/right" not in metrics:
        known = [metric.removeprefix("env/") for metric in metrics if metric.startswith("env/")]
        raise UserError(
            f'monitors.right_metric = "{name}" cannot act: no environment reports it.{nearest(name, known)} '
            "Name one of these, or leave it away."
        )
