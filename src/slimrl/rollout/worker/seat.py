"""Keeps the worker processes of a taskset alive. Each process has a seat, which starts another if the process dies."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from slimrl.errors import RolloutError, UserError
from slimrl.rollout.held import release_thread
from slimrl.rollout.worker.process import WorkerProcess

MAX_DEATHS = 64  # deaths in a row without an answered step; then no restart until the next training step

Question = tuple[str, Mapping[str, Any]]


class Seat:
    """A place for one worker process at a time. `start` starts a process. Every new process first receives the
    questions in `known`, which load the class and bring it to its present state. `number` is the seat's number within
    its taskset."""

    def __init__(self, number: int, start: Callable[[], WorkerProcess], known: Sequence[Question]) -> None:
        self._number, self._start, self._known = number, start, known
        self._found: WorkerProcess | None = None
        self._starting = threading.Lock()  # episodes and the run itself ask from different threads
        self._seed = ""
        self._num_deaths, self._num_in_a_row = 0, 0  # since the generators were seeded, and since a step was answered

    def open(self) -> WorkerProcess:
        """Start the first process and return it. Raise UserError if it cannot create the class."""
        self._found = self._new_process()
        return self._found

    def process(self) -> WorkerProcess:
        """Return the running process, or start one. Raise RolloutError if the start fails, or after too many deaths."""
        if running := self.running():
            return running
        with release_thread(), self._starting:
            if not self.running():
                self._found = self._start_again()
            assert self._found
            return self._found

    def running(self) -> WorkerProcess | None:
        """Return the process if it still runs."""
        return self._found if self._found and not self._found.is_over else None

    def begin_step(self, seed: str | None) -> None:
        """Reset the count of deaths. If `seed` is not None, seed the random generators now and after every restart."""
        self._num_in_a_row = 0
        if seed is None:
            return
        self._seed = f"{seed}/seat {self._number}" if self._number else seed
        # If the process is dead now, its replacement gets the same seed as a process that survived.
        self._num_deaths = 0 if self.running() or not self._found else -1
        if running := self.running():
            with suppress(RolloutError):  # the process has just ended: the next one gets the same seed
                running.ask_episode("seed", text=self._seed)

    def close(self) -> None:
        """End the process."""
        if self._found:
            self._found.close()

    def _start_again(self) -> WorkerProcess:
        if self._found:
            self._count_death(self._found)
        try:
            return self._new_process()
        except UserError as error:
            raise RolloutError("environment_died", f"no process could be started for it: {error}") from error

    def _new_process(self) -> WorkerProcess:
        process = self._start()
        try:
            for do, fields in self._known:
                process.ask_class(do, **fields)
            if self._seed:
                text = f"{self._seed}/{self._num_deaths}" if self._num_deaths else self._seed
                process.ask_episode("seed", text=text)
        except BaseException:
            process.close()
            raise
        return process

    def _count_death(self, process: WorkerProcess) -> None:
        if process.has_stepped:
            self._num_in_a_row, process.has_stepped = 0, False  # count each death once, even if no other process starts
        if self._num_in_a_row == MAX_DEATHS:
            raise RolloutError(
                "environment_died",
                f"its process has ended {MAX_DEATHS} times without answering a step, and is not started again before "
                f"the next training step; the last time {process.end}",
            )
        self._num_deaths += 1
        self._num_in_a_row += 1
