"""Keeps the indexes of all runs up to date, on a thread of its own, while the page already answers."""

import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl_view.about import Settings
from slimrl_view.curves import Alarms, Curves
from slimrl_view.index import clear, index_path, prepare
from slimrl_view.monitors import Monitors
from slimrl_view.queries import Index
from slimrl_view.runs import ALARMS, RunDir
from slimrl_view.scan import Known, Progress, progress_of_another, update

POLL_S = 1.0
END_S = 5.0  # for a read that is under way; a disk may not answer, and the thread is a daemon
WAIT_S = 0.2


@dataclass(slots=True)
class Run:
    """A run that is shown: its directory, and what is read of it."""

    directory: RunDir
    index: Index
    curves: Curves
    alarms: Alarms
    monitors: Monitors
    progress: Progress | None = None  # of the indexing, while there is much to read
    problem: str = ""  # why the index is not up to date
    damaged_index: threading.Event = field(default_factory=threading.Event)


def open_run(directory: RunDir) -> Run:
    """A run with its index, which may still be empty. Raises UserError if there is no place for the index."""
    path = index_path(directory.path)
    try:
        prepare(path)
    except sqlite3.OperationalError as error:
        raise UserError(f"{path} cannot be written: {error}. Free some space there, or delete the file.") from None
    run = directory.path
    return Run(directory, Index(path), Curves(run), Alarms(run / ALARMS), Monitors(run))


class Indexer:
    """The thread that reads what is new in the runs' files, once a second."""

    def __init__(self, runs: Sequence[Run], poll_s: float = POLL_S) -> None:
        self._runs = runs
        self._poll_s = poll_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="index", daemon=True)

    def __enter__(self) -> "Indexer":
        self._thread.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stopped.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            for run in self._runs:
                try:
                    bring_up_to_date(run, self._stopped)
                except Exception as error:  # whatever is wrong with a run, the others are read on
                    run.problem = f"its rollouts cannot be read: {type(error).__name__}: {error}"
                    run.progress = None
            self._stopped.wait(self._poll_s)


def what_is_known(path: Path) -> Known:
    """What the settings of a run say of its rollouts."""
    settings = Settings(path)
    environments, last_step = settings.environments(), settings.get("max_steps")
    only = environments[0] if len(environments) == 1 else ""
    return Known(only, last_step if isinstance(last_step, int) and 0 < last_step < 10**12 else 0)


def wait_until_indexed(run: Run) -> None:
    """Read what is new in a run's files now, or wait while another process does. Raises UserError if it cannot be."""
    while not bring_up_to_date(run, threading.Event()):
        if run.problem:
            raise UserError(run.problem)
        time.sleep(WAIT_S)


def bring_up_to_date(run: Run, stopped: threading.Event) -> bool:
    """Read what is new in a run's files. Returns whether that is done: another process may be at it, and what keeps the
    files from being read is noted with the run. Either way it can be tried again."""

    def report(progress: Progress) -> None:
        run.progress = progress

    known = what_is_known(run.directory.path)
    try:
        if run.damaged_index.is_set():
            clear(run.index.path)
            run.damaged_index.clear()
        prepare(run.index.path)  # it may have been deleted
        is_done = update(run.directory.path, run.index.path, known, report, stopped.is_set)
        run.progress = None if is_done else progress_of_another(run.directory.path, run.index.path)
        run.problem = ""
        return is_done
    except sqlite3.OperationalError as error:  # a full disk, or another viewer that writes for long
        run.problem = f"the index cannot be written: {error}"
    except sqlite3.DatabaseError:
        run.damaged_index.set()
    except (OSError, UserError) as error:
        run.problem = str(error)
    run.progress = None
    return False
