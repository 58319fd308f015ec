"""Sinks for experiment trackers: Weights & Biases, Trackio and TensorBoard. Each needs one of slimrl's optional
dependencies (an extra).

A tracker cannot stop a run. Its first failure is logged, and then the sink is disabled. A resumed run continues the
same run in the tracker. `metrics.jsonl` (`monitor/sinks.py`) is always written.
"""

import contextlib
import io
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import require
from slimrl.io.files import without_nan

TENSORBOARD_DIRECTORY = "tensorboard"

# Two functions of a tracker, which may raise any exception. The first logs the metrics of a step. The second finishes
# the run. Its argument is True if the run failed.
Tracker = tuple[Callable[[int, Mapping[str, float]], object], Callable[[bool], object]]


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The description of a run for trackers. `first_step` is the first step that this process logs. With `resume`, this
    process continues the run of an earlier process."""

    output_dir: Path
    config: Mapping[str, Any]
    first_step: int
    resume: bool

    def keep_name(self, file_name: str, new: str) -> str:
        """Return the run's name in the tracker. A resumed run reads the name from the file `file_name` in the run's
        directory. A new run gets the name `new` and stores it in this file."""
        file = self.output_dir / file_name
        name = file.read_text().strip() if self.resume and file.is_file() else new
        self.output_dir.mkdir(parents=True, exist_ok=True)
        file.write_text(name + "\n")
        return name


class TrackerSink:
    """A sink that passes metrics to a tracker until the tracker's first failure."""

    def __init__(self, title: str, start: Callable[[], Tracker], say: Callable[[str], None], view: str = "") -> None:
        """Start the tracker. `say` is called with the command `view`, which shows the run. If the tracker fails, now or
        later, `say` is called once with a message."""
        self._title, self._say = title, say
        self._tracker: Tracker | None = None
        with self._guard():
            self._tracker = start()
        if view:
            say(f"{title}: `{view}` shows this run")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics, unless the tracker has failed before."""
        if self._tracker:
            with self._guard():
                self._tracker[0](step, metrics)

    def close(self, failed: bool = False) -> None:
        """Finish the tracker's run."""
        if self._tracker:
            with self._guard():
                self._tracker[1](failed)
        self._tracker = None

    @contextlib.contextmanager
    def _guard(self) -> Any:
        """Context manager: disable the sink after any exception in the block, because an error of a tracker must not
        stop a training run."""
        try:
            yield
        except Exception as error:
            self._tracker = None
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(f"{self._title} is off for the rest of this run; metrics.jsonl goes on. It said: {reason}")


def wandb_sink(run: TrackedRun, init: Mapping[str, str], say: Callable[[str], None]) -> TrackerSink:
    """Return the sink for Weights & Biases. `init` has arguments of `wandb.init`; empty arguments are left out.

    W&B's environment variables (WANDB_MODE, WANDB_API_KEY ...) are respected. Raise UserError if the extra is missing.
    """
    wandb = require("wandb", "wandb", "Weights & Biases")

    def start() -> Tracker:
        run_id = run.keep_name("wandb_run_id", uuid.uuid4().hex[:8])
        # W&B would otherwise capture the output and print between the progress bars.
        settings = wandb.Settings(console="off", silent=True)
        options = {name: value for name, value in init.items() if value != ""}
        opened = wandb.init(
            id=run_id, resume="allow", dir=str(run.output_dir), settings=settings, config=run.config, **options
        )
        # Use the metric `step` as the x axis, because W&B's step counter refuses steps that a resumed run repeats.
        opened.define_metric("step")
        opened.define_metric("*", step_metric="step")
        return (
            lambda step, metrics: opened.log({"step": step, **metrics}),
            lambda failed: opened.finish(exit_code=int(failed)),
        )

    return TrackerSink("W&B", start, say)


def trackio_sink(run: TrackedRun, project: str, name: str, say: Callable[[str], None]) -> TrackerSink:
    """Return the sink for Trackio. Trackio stores runs in a local directory, unless its environment variables
    (TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL) set another location. Raise UserError if the extra is missing.
    """
    trackio = require("trackio", "trackio", "Trackio")

    def start() -> Tracker:
        # Trackio finds a run by its name, so it must be unique in the project.
        new = f"{name or run.output_dir.resolve().name}-{uuid.uuid4().hex[:6]}"
        kept = run.keep_name("trackio_run_name", new)
        # Hide Trackio's instructions, which would overwrite the progress bars. Turn off its measurements of GPU and
        # CPU, because slimrl measures both.
        with contextlib.redirect_stdout(io.StringIO()):
            opened = trackio.init(
                project=project, name=kept, config=dict(without_nan(run.config)), resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
        return lambda step, metrics: opened.log(dict(metrics), step=step), finish

    def finish(failed: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            trackio.finish()  # not `opened.finish()`, after which Trackio would finish the run again at exit

    return TrackerSink("Trackio", start, say, f"trackio show --project {project}")


def tensorboard_sink(run: TrackedRun, settings: str, say: Callable[[str], None]) -> TrackerSink:
    """Return the sink for TensorBoard. It writes event files to `tensorboard/` in the run's directory. `settings` is
    shown as text. Raise UserError if the extra is missing."""
    module = require("torch.utils.tensorboard.writer", "tensorboard", "TensorBoard")
    directory = run.output_dir / TENSORBOARD_DIRECTORY

    def start() -> Tracker:
        # A resumed run logs steps again; TensorBoard then hides the old points from this step on.
        writer = module.SummaryWriter(str(directory), purge_step=run.first_step if run.resume else None)
        writer.add_text("config.toml", f"```toml\n{settings}\n```", run.first_step)

        def log(step: int, metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)
            writer.flush()  # so that viewers see every step, and no step is lost if the process is killed

        return log, lambda failed: writer.close()

    return TrackerSink("TensorBoard", start, say, f"tensorboard --logdir {directory}")
