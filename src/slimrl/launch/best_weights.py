"""Names the weights with the best held-out measure `weights/best` while a run goes on."""

from collections.abc import Mapping
from pathlib import Path

from slimrl.config.run import RLConfig, SFTConfig, TrainerOnlyConfig
from slimrl.eval.evaluate import mode_of
from slimrl.launch.run_lock import METRICS
from slimrl.monitor.metrics import lookup
from slimrl.monitor.sinks import read_metrics
from slimrl.trainer.weights import name_best


class BestWeights:
    """The sink that watches one metric, logged as n when it is of the weights after n steps. What an earlier process
    of the run has logged counts, too."""

    def __init__(self, output_dir: Path, metric: str) -> None:
        self._output_dir = output_dir
        self._metric = metric
        self._sign = -1.0 if lookup(metric).better == "lower" else 1.0
        self._scores: dict[int, float] = {}
        path = output_dir / METRICS
        for step, metrics in read_metrics(path) if path.exists() else ():
            self._note(step, metrics)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Moves the name if the metrics have a better measure."""
        if self._note(step, metrics):
            name_best(self._output_dir, self._scores)

    def close(self, failed: bool = False) -> None:
        """Nothing is left to do."""

    def _note(self, step: int, metrics: Mapping[str, float]) -> bool:
        if self._metric in metrics:
            self._scores[step] = self._sign * metrics[self._metric]
        return self._metric in metrics


def best_weights(config: RLConfig | SFTConfig | TrainerOnlyConfig, output_dir: Path) -> list[BestWeights]:
    """The sink for the held-out measure of a command; none for one that has no such measure."""
    match config:
        case RLConfig():
            return [BestWeights(output_dir, f"held_out/reward_{mode_of(config.eval.temperatures[0])}")]
        case SFTConfig():
            return [BestWeights(output_dir, "sft/val_loss")]
        case _:
            return []
