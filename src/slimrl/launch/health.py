"""The watches over a run, made from its settings: monitors of its health, and the name `best` for its best weights."""

from collections.abc import Mapping
from pathlib import Path

from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.errors import nearest
from slimrl.eval.evaluate import mode_of
from slimrl.io.run_dir import RunDir
from slimrl.monitor.console import RunConsole
from slimrl.monitor.health.health import HealthWatch
from slimrl.monitor.health.measure import AUTO
from slimrl.monitor.metrics import lookup
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.state import name_best
from slimrl.types import Metrics


def open_watches(config: RLConfig, output_dir: Path, console: RunConsole, first: int) -> list[HealthWatch]:
    """Return the watch over a run that continues from step `first`; none if the monitors are off."""
    if not config.monitors.enabled:
        return []
    path = RunDir(output_dir).metrics
    past = [line for line in read_metrics(path) if line[0] < first] if first and path.exists() else []

    def say(text: str) -> None:
        console.note(text, "bold red")

    return [HealthWatch(config.monitors, RunDir(output_dir).alarms, past, say)]


def unknown_right_metric(config: RLConfig, metrics: Metrics) -> str:
    """Return a note if no environment reported the metric `monitors.right_metric` in this step; else an empty text. A
    later step, in which episodes finish, may report it."""
    name = config.monitors.right_metric
    if not config.monitors.enabled or name == AUTO or "monitor/right" in metrics:
        return ""
    known = [metric.removeprefix("env/") for metric in metrics if metric.startswith("env/")]
    return (
        f'monitors.right_metric = "{name}": no environment reports it in the first step.{nearest(name, known)} While '
        "none does, right answers are not watched."
    )


class BestWeights:
    """The sink that names the weights with the best held-out metric `weights/best`. The metric of the weights after n
    steps is logged with step n. Metrics that an earlier process of the run logged count, too."""

    def __init__(self, output_dir: Path, metric: str) -> None:
        self._output_dir = output_dir
        self._metric = metric
        self._sign = -1.0 if lookup(metric).better == "lower" else 1.0
        self._scores: dict[int, float] = {}
        path = RunDir(output_dir).metrics
        for step, metrics in read_metrics(path) if path.exists() else ():
            self._note(step, metrics)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Move the name if the metrics have a better value."""
        if self._note(step, metrics):
            name_best(self._output_dir, self._scores)

    def close(self, failed: bool = False) -> None:
        """No-op."""

    def _note(self, step: int, metrics: Mapping[str, float]) -> bool:
        if self._metric in metrics:
            self._scores[step] = self._sign * metrics[self._metric]
        return self._metric in metrics


def best_weights(config: RLConfig | SFTConfig | TrainerOnlyConfig, output_dir: Path) -> list[BestWeights]:
    """Return the sink for the held-out metric of a command; none for a command without such a metric."""
    match config:
        case RLConfig():
            return [BestWeights(output_dir, f"held_out/reward_{mode_of(config.eval.temperatures[0])}")]
        case SFTConfig():
            return [BestWeights(output_dir, "sft/val_loss")]
        case _:
            return []
