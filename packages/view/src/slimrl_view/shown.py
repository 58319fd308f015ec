"""Opens runs, and keeps their indexes up to date on a separate thread, so that the page can answer at once."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_view.about import Settings
from slimrl_view.curves import Curves, Growing
from slimrl_view.index import index_path, prepare, remove, update
from slimrl_view.monitors import Monitors
from slimrl_view.queries import Index
from slimrl_view.runs import NamedRun

POLL_S = 1.0
END_S = 5.0  # seconds to wait for a running read; a disk may not answer, so the thread is a daemon
Json = dict[str, Any]


@dataclass(slots=True)
class Run:
    """A shown run: its directory, and the readers of its files."""

    directory: NamedRun
    index: Index
    curves: Curves
    alarms: Growing[list[Json]]
    monitors: Monitors
    progress: Json | None = None  # progress of the indexing, while it runs
    problem: str = ""  # the reason why the index is not up to date


def open_run(directory: NamedRun) -> Run:
    """Return a run with its index, which may still be empty. Raises UserError if the index cannot be written."""
    path = index_path(directory.path)
    try:
        prepare(path)
    except (sqlite3.OperationalError, OSError) as error:
        raise UserError(f"{path} cannot be written: {error}. Free some space there, or delete the file.") from None
    run = directory.path
    return Run(directory, Index(path), Curves(run), Growing(RunDir(run).alarms, list, list.append), Monitors(run))


@contextmanager
def keep_indexed(runs: Sequence[Run], poll_s: float = POLL_S) -> Iterator[None]:
    """Context manager: keep the indexes of the runs up to date on a thread, with an update every `poll_s` seconds."""
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            for run in runs:
                bring_up_to_date(run, stopped)
            stopped.wait(poll_s)

    thread = threading.Thread(target=work, name="index", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(END_S)


def bring_up_to_date(run: Run, stopped: threading.Event) -> None:
    """Bring the index of a run up to date, or stop early if `stopped` is set. If this fails, `run.problem` has the
    reason, and the call can be repeated."""
    path, index, problem = run.directory.path, run.index.path, ""
    try:
        prepare(index)  # the index may have been deleted
        for run.progress in update(path, index, _last_step(path)):
            if stopped.is_set():
                break
    except Exception as error:  # the other runs are still read, even after an unknown error
        problem = f"its rollouts cannot be read: {type(error).__name__}: {error}"
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            remove(index)  # it is damaged, and is built again
    run.problem, run.progress = problem, None


def _last_step(run: Path) -> int:
    last_step = Settings(run).get("max_steps")
    return last_step if isinstance(last_step, int) and 0 < last_step < 10**12 else 0
