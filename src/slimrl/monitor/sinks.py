"""Where metrics go: `Monitor.log` checks the names against the registry and hands them to every sink.

`JsonlSink` is always there; W&B is an extra that may fail without harm. Run with `WANDB_MODE=offline` or `disabled` to
keep W&B off the network.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from slimrl.errors import UserError, install_hint
from slimrl.io.files import LineFile, encode_line, read_lines, replace_file, without_nan
from slimrl.monitor.metrics import lookup
from slimrl.types import Metrics


class Sink(Protocol):
    """Takes the metrics of a step. Steps do not fall; one step may come several times with different metrics."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, failed: bool = False) -> None: ...


class Monitor:
    """The one place that the loops log to. A context manager: leaving it closes every sink.

    >>> with Monitor([JsonlSink(output_dir / "metrics.jsonl", first_step=start)]) as monitor:  # doctest: +SKIP
    ...     monitor.log(0, {"reward/mean": 0.25, "env/num_words": 3.0})
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.open_sinks = list(sinks)

    def add(self, sink: Sink) -> None:
        """From now on, log there too."""
        self.open_sinks.append(sink)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Writes the metrics to every sink. Raises ValueError for an unregistered name, before anything is written."""
        for name in metrics:
            lookup(name)
        values = {name: float(value) for name, value in metrics.items()}
        for sink in self.open_sinks:
            sink.write(step, values)

    def close(self, failed: bool = False) -> None:
        """Closes every sink, even if closing one of them fails."""
        with ExitStack() as stack:
            for sink in self.open_sinks:
                stack.callback(sink.close, failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


class JsonlSink:
    """metrics.jsonl: one JSON object a line, there for every reader as soon as `write` returns.

        {"step": 3, "reward/mean": 0.41, "loss/ratio_max": null, "nonfinite": {"loss/ratio_max": "inf"}}

    JSON has no nan or infinity: such a number is written as null and named under `nonfinite`; `read_metrics` undoes it.
    """

    def __init__(self, path: Path, first_step: int = 0) -> None:
        """Keeps the file's lines before `first_step` and atomically drops the others and a torn last line.

        A fresh run starts at 0 and so starts an empty file; a run resumed from step k rewrites what followed k.
        """
        if path.exists():
            replace_file(path, (encode_line(line) for line in read_lines(path) if line["step"] < first_step))
        self._file = LineFile(path, keep=True)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Appends one line. Raises UserError when the disk is full."""
        record: dict[str, Any] = {"step": step}
        record |= without_nan(metrics)
        odd = {name: str(value) for name, value in metrics.items() if not math.isfinite(value)}
        self._file.append(record | {"nonfinite": odd} if odd else record)

    def close(self, failed: bool = False) -> None:
        """Closes the file."""
        self._file.close()


def read_metrics(path: Path) -> list[tuple[int, Metrics]]:
    """(step, metrics) for every line of a metrics.jsonl, in order, with non-finite numbers restored."""
    lines: list[tuple[int, Metrics]] = []
    for record in read_lines(path):
        step = int(record.pop("step"))
        record |= {name: float(text) for name, text in record.pop("nonfinite", {}).items()}
        lines.append((step, record))
    return lines


class WandbSink:
    """Weights & Biases, if the user asked for it. Anything that goes wrong in it is said once and then ignored.

    W&B's own variables rule (WANDB_MODE, WANDB_API_KEY ...). A resumed run goes on in the same W&B run; its x axis is
    the logged `step`, so that steps which a resumed run repeats are accepted.
    """

    def __init__(self, output_dir: Path, init: Mapping[str, Any], say: Callable[[str], None], resume: bool) -> None:
        """`init` is passed to `wandb.init` (project, entity, name, config). Raises UserError without wandb."""
        try:
            import wandb  # only when enabled: it takes seconds
        except ImportError as error:
            raise UserError(
                f"wandb.enabled is true, but wandb cannot be imported ({error}). Install the extra, "
                f"{install_hint('wandb')}, or run with --wandb.enabled false: metrics.jsonl is written either way."
            ) from error
        self._wandb = wandb
        self._say = say
        self._run: Any = None
        self._call_guarded(lambda: self._start(output_dir, init, resume))

    def _start(self, output_dir: Path, init: Mapping[str, Any], resume: bool) -> None:
        id_file = output_dir / "wandb_run_id"
        run_id = id_file.read_text().strip() if resume and id_file.exists() else uuid.uuid4().hex[:8]
        output_dir.mkdir(parents=True, exist_ok=True)
        id_file.write_text(run_id + "\n")
        settings = self._wandb.Settings(console="off", silent=True)  # the terminal is ours
        options = {name: value for name, value in init.items() if value != ""}
        run = self._wandb.init(id=run_id, resume="allow", dir=str(output_dir), settings=settings, **options)
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hands the metrics to W&B; does nothing after a failure."""
        if self._run is not None:
            self._call_guarded(lambda: self._run.log({"step": step, **metrics}))

    def close(self, failed: bool = False) -> None:
        """Ends the W&B run, marked as crashed if the run failed."""
        if self._run is not None:
            self._call_guarded(lambda: self._run.finish(exit_code=int(failed)))
            self._run = None

    def _call_guarded(self, action: Callable[[], None]) -> None:
        """The boundary to W&B: a network, a login and a helper process, none of which may cost a training run."""
        try:
            action()
        except Exception as error:
            self._run = None
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(f"W&B is off for the rest of this run; metrics.jsonl goes on. It said: {reason}")
