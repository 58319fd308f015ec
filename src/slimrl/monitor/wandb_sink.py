"""Sends metrics to Weights & Biases. `metrics.jsonl` (`monitor/sinks.py`) is always written, too."""

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slimrl.errors import require

RUN_ID = "wandb_run_id"  # the file with the run's id, in the run's directory


class WandbSink:
    """A sink for Weights & Biases, whose environment variables (WANDB_MODE, WANDB_API_KEY ...) are respected.

    W&B cannot stop a training run: its first failure is logged, and then the sink is disabled.
    """

    def __init__(self, output_dir: Path, init: Mapping[str, Any], resume: bool, say: Callable[[str], None]) -> None:
        """Start a run, or with `resume` continue the run of an earlier process in `output_dir`. `init` has arguments of
        `wandb.init`; empty texts are left out. `say` is called at most once, with a failure. Raise UserError if the
        extra is missing."""
        wandb = require("wandb", "wandb", "Weights & Biases")
        self._say = say
        self._run: Any = None
        with self._disable_on_failure():
            # W&B would otherwise capture the output and print between the progress bars.
            settings = wandb.Settings(console="off", silent=True)
            options = {name: value for name, value in init.items() if value != ""}
            run_id = _keep_id(output_dir, resume)
            run = wandb.init(id=run_id, resume="allow", dir=str(output_dir), settings=settings, **options)
            # Use the metric `step` as the x axis, because W&B's step counter refuses steps that a resumed run repeats.
            run.define_metric("step")
            run.define_metric("*", step_metric="step")
            self._run = run

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics, unless W&B has failed before."""
        if self._run:
            with self._disable_on_failure():
                self._run.log({"step": step, **metrics})

    def close(self, failed: bool = False) -> None:
        """Finish W&B's run."""
        if self._run:
            with self._disable_on_failure():
                self._run.finish(exit_code=int(failed))

    @contextlib.contextmanager
    def _disable_on_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._run = None
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(f"W&B is off for the rest of this run; metrics.jsonl goes on. It said: {reason}")


def _keep_id(output_dir: Path, resume: bool) -> str:
    file = output_dir / RUN_ID
    run_id = file.read_text().strip() if resume and file.is_file() else uuid.uuid4().hex[:8]
    output_dir.mkdir(parents=True, exist_ok=True)
    file.write_text(run_id + "\n")
    return run_id
