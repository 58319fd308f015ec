"""The monitors of a run's health, made from its settings, and the check of what only a first step can show."""

from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import nearest
from slimrl.launch.run_lock import METRICS
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


def unknown_right_metric(config: RLConfig, metrics: Metrics) -> str:
    """A note for a step in which no environment reported the right answers that `monitors.right_metric` names; empty
    otherwise. Later steps may report it, as those whose episodes come to an end."""
    name = config.monitors.right_metric
    if not config.monitors.enabled or name == AUTO or "monitor/right" in metrics:
        return ""
    known = [metric.removeprefix("env/") for metric in metrics if metric.startswith("env/")]
    return (
        f'monitors.right_metric = "{name}": no environment reports it in the first step.{nearest(name, known)} While '
        "none does, right answers are not watched."
    )
