"""Writes metrics. `Monitor.log` checks that the names are registered, and passes the metrics to all sinks.

`JsonlSink` is always used. The sink for Weights & Biases is in `monitor/wandb_sink.py`.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from slimrl.errors import UserError
from slimrl.io.files import LineFile, encode_line, read_lines, replace_file, without_nan
from slimrl.monitor.health.health import HealthWatch
from slimrl.monitor.metrics import lookup
from slimrl.types import Metrics


class Sink(Protocol):
    """A receiver of metrics. Steps never decrease. A step may be written several times, with different metrics."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Receive the metrics of a step."""

    def close(self, failed: bool = False) -> None:
        """Close the sink; `failed` is True if the run raised an exception."""


class Monitor:
    """Receives the metrics of the training loops. It is a context manager that closes all sinks at its end.

    >>> with Monitor([JsonlSink(output_dir / "metrics.jsonl", first_step=start)]) as monitor:  # doctest: +SKIP
    ...     monitor.log(0, {"reward/mean": 0.25, "env/num_words": 3.0})
    """

    def __init__(self, sinks: Sequence[Sink], watches: Sequence[HealthWatch] = ()) -> None:
        """Write metrics to the `sinks`. The `watches` receive all metrics before the sinks, and write after them."""
        self.open_sinks = list(sinks)
        self._watches = watches

    def add(self, sink: Sink) -> None:
        """Add a sink for all later metrics."""
        self.open_sinks.append(sink)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics to all sinks. Raise ValueError for an unregistered name, before anything is written."""
        for name in metrics:
            lookup(name)
        # Convert to float, because JSON cannot hold the number types of numpy or PyTorch.
        values = {name: float(value) for name, value in metrics.items()}
        for watch in self._watches:
            values |= watch.observe(step, values)
        for sink in (*self.open_sinks, *self._watches):
            sink.write(step, values)

    def close(self, failed: bool = False) -> None:
        """Close all sinks, even if closing one of them fails."""
        # An ExitStack calls all its callbacks, even if one of them raises an exception, which is raised at the end.
        with ExitStack() as stack:
            for sink in (*self.open_sinks, *self._watches):
                stack.callback(sink.close, failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class JsonlSink:
    """A sink that writes metrics.jsonl, one JSON object per line. `write` returns after the line is written.

        {"step": 3, "reward/mean": 0.41, "loss/ratio_max": null, "nonfinite": {"loss/ratio_max": "inf"}}

    JSON has no nan and no infinity. These values are written as null and listed in `nonfinite`. `read_metrics` restores
    them.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        """Open the file. Remove an incomplete last line and all lines of steps >= `first_step`, atomically.

        A new run has `first_step` 0, so its file is empty. A run that resumes at step k logs step k and later steps
        again.
        """
        if path.exists() and first_step:
            lines = zip(read_metrics(path), read_lines(path), strict=True)
            replace_file(path, [encode_line(line) for (step, _), line in lines if step < first_step])
        self._file = LineFile(path, keep=first_step > 0)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line. Raise UserError if the disk is full."""
        record: dict[str, Any] = {"step": step}
        record |= without_nan(metrics)
        odd = {name: str(value) for name, value in metrics.items() if not math.isfinite(value)}
        self._file.append(record | {"nonfinite": odd} if odd else record)

    def close(self, failed: bool = False) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[tuple[int, Metrics]]:
    """Return the lines of a metrics.jsonl in order, each as (step, metrics), with nan and infinity restored.

    Raise UserError if the file cannot be read, or if a line does not contain metrics.
    """
    lines: list[tuple[int, Metrics]] = []
    for number, record in enumerate(read_lines(path), start=1):
        try:
            step = int(record.pop("step"))
            record |= {name: float(text) for name, text in record.pop("nonfinite", {}).items()}
            lines.append((step, {name: float(value) for name, value in record.items()}))
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UserError(
                f"{path}:{number} is no line of metrics ({type(error).__name__}: {error}). Mend or delete that line."
            ) from None
    return lines
