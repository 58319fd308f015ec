"""Sinks for other programs that show runs: Weights & Biases, Trackio and TensorBoard, each an extra.

None of them can end a run: the first failure is said, and that sink is off from then on. A resumed run goes on in the
same run of theirs. `metrics.jsonl` (`monitor/sinks.py`) is written whatever happens here.
"""

import contextlib
import io
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from slimrl.errors import UserError, install_hint
from slimrl.io.files import without_nan

TENSORBOARD_DIRECTORY = "tensorboard"


class Tracker(Protocol):
    """A run of another program. Its methods may raise anything."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step."""

    def finish(self, failed: bool) -> None:
        """End the run, as crashed if it `failed`."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is told of a run: its directory, its settings, and the first step that this process logs. A run
    with `resume` continues one that an earlier process has begun."""

    output_dir: Path
    config: Mapping[str, Any]
    first_step: int
    resume: bool

    def keep_name(self, file_name: str, new: str) -> str:
        """The name of the tracker's run: the one that a resumed run keeps in a file of its directory, or `new`, which
        is then kept there."""
        file = self.output_dir / file_name
        name = file.read_text().strip() if self.resume and file.is_file() else new
        self.output_dir.mkdir(parents=True, exist_ok=True)
        file.write_text(name + "\n")
        return name


class TrackerSink:
    """The sink that passes metrics to a tracker until that fails for the first time."""

    def __init__(self, title: str, start: Callable[[], Tracker], say: Callable[[str], None]) -> None:
        """Start the tracker. `say` gets one line if it fails, now or later."""
        self._title, self._say = title, say
        self._tracker: Tracker | None = None
        self._call_guarded(lambda: self._keep(start()))

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics, unless the tracker has failed before."""
        if tracker := self._tracker:
            self._call_guarded(lambda: tracker.log(step, metrics))

    def close(self, failed: bool = False) -> None:
        """Finish the tracker's run."""
        if tracker := self._tracker:
            self._call_guarded(lambda: tracker.finish(failed))
            self._tracker = None

    def _keep(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def _call_guarded(self, action: Callable[[], None]) -> None:
        """Call the tracker; any exception turns the sink off. Network, login, disk or a helper process of another
        program must not end a training run."""
        try:
            action()
        except Exception as error:
            self._tracker = None
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(f"{self._title} is off for the rest of this run; metrics.jsonl goes on. It said: {reason}")


def wandb_sink(run: TrackedRun, init: Mapping[str, str], say: Callable[[str], None]) -> TrackerSink:
    """The sink for Weights & Biases. `init` has arguments of `wandb.init`, of which empty ones are left out.

    Its environment variables (WANDB_MODE, WANDB_API_KEY ...) have their usual effect. Raises UserError if the extra is
    missing.
    """
    try:
        import wandb  # an extra, and slow to import: only here
    except ImportError as error:
        raise _import_error("wandb", "Weights & Biases", error, "WANDB_MODE=disabled or --no-wandb.enabled") from error
    return TrackerSink("W&B", lambda: _Wandb(wandb, run, init), say)


class _Wandb:
    """The x axis is the metric `step`: W&B's own step counter would refuse steps that a resumed run repeats."""

    def __init__(self, wandb: Any, run: TrackedRun, init: Mapping[str, str]) -> None:
        run_id = run.keep_name("wandb_run_id", uuid.uuid4().hex[:8])
        # W&B would otherwise capture the output and print between the progress bars.
        settings = wandb.Settings(console="off", silent=True)
        options = {name: value for name, value in init.items() if value != ""}
        self._run = wandb.init(
            id=run_id, resume="allow", dir=str(run.output_dir), settings=settings, config=run.config, **options
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def finish(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def trackio_sink(run: TrackedRun, project: str, name: str, say: Callable[[str], None]) -> TrackerSink:
    """The sink for Trackio, which keeps runs in its own directory here, or where its variables say (TRACKIO_DIR,
    TRACKIO_SPACE_ID, TRACKIO_SERVER_URL). Raises UserError if the extra is missing."""
    try:
        import trackio  # an extra, and slow to import: only here
    except ImportError as error:
        raise _import_error("trackio", "Trackio", error, "--no-trackio.enabled") from error
    sink = TrackerSink("Trackio", lambda: _Trackio(trackio, run, project, name), say)
    say(f"Trackio: `trackio show --project {project}` shows this run")
    return sink


class _Trackio:
    def __init__(self, trackio: Any, run: TrackedRun, project: str, name: str) -> None:
        # The name is how Trackio finds a run again, so it must be the only one of the project.
        new = f"{name or run.output_dir.resolve().name}-{uuid.uuid4().hex[:6]}"
        self._trackio = trackio
        kept = run.keep_name("trackio_run_name", new)
        # It prints how to look at a project, over the progress bars; and it would watch GPU and CPU beside slimrl.
        with contextlib.redirect_stdout(io.StringIO()):
            self._run = trackio.init(
                project=project, name=kept, config=dict(without_nan(run.config)), resume="allow", embed=False,
                auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def finish(self, failed: bool) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._trackio.finish()  # and not the run's own, after which Trackio would do it again at the exit


def tensorboard_sink(run: TrackedRun, settings: str, say: Callable[[str], None]) -> TrackerSink:
    """The sink for TensorBoard: event files in `tensorboard/` of the run's directory. `settings` is shown as a text.
    Raises UserError if the extra is missing."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter  # needs an extra, and is slow to import: only here
    except ImportError as error:
        raise _import_error("tensorboard", "TensorBoard", error, "--no-tensorboard.enabled") from error
    sink = TrackerSink("TensorBoard", lambda: _TensorBoard(SummaryWriter, run, settings), say)
    say(f"TensorBoard: `tensorboard --logdir {run.output_dir / TENSORBOARD_DIRECTORY}` shows this run")
    return sink


class _TensorBoard:
    def __init__(self, writer: Any, run: TrackedRun, settings: str) -> None:
        # What an earlier process logged from the first step on is repeated, and TensorBoard then hides the old points.
        purge = run.first_step if run.resume else None
        self._writer = writer(str(run.output_dir / TENSORBOARD_DIRECTORY), purge_step=purge)
        self._writer.add_text("config.toml", f"```toml\n{settings}\n```", run.first_step)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # so that one who watches a run sees every step, and a kill loses none

    def finish(self, failed: bool) -> None:
        self._writer.close()


def _import_error(extra: str, program: str, error: ImportError, off: str) -> UserError:
    return UserError(
        f"[{extra}] asks for {program}, which cannot be imported ({error}). Install the extra, {install_hint(extra)}, "
        f"or turn it off with {off}: metrics.jsonl is written either way."
    )
