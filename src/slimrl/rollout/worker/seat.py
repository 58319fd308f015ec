"""The module keeps the worker processes of a taskset alive: each has a seat, and one that ends is replaced there."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from slimrl.errors import RolloutError, UserError
from slimrl.rollout.held import release_thread
from slimrl.rollout.worker.process import WorkerProcess

MAX_DEATHS = 64  # in a row, without a step that was answered, before the next training step

Question = tuple[str, Mapping[str, Any]]


class Seat:
    """A place for one worker process after the other. `start` starts one, which is then asked the questions in `known`:
    those that the first process was asked about its class. `number` is the seat's number within its taskset."""

    def __init__(self, number: int, start: Callable[[], WorkerProcess], known: Sequence[Question]) -> None:
        self._number, self._start, self._known = number, start, known
        self._found: WorkerProcess | None = None
        self._starting = threading.Lock()  # episodes and the run itself ask in threads of their own
        self._seed = ""
        self._num_deaths, self._num_in_a_row = 0, 0  # since the generators were seeded, and since a step was answered

    def open(self) -> WorkerProcess:
        """The first process, which is started. Raises UserError if the class cannot be made there."""
        self._found = self._new_process()
        return self._found

    def process(self) -> WorkerProcess:
        """The process, which is started if there is none or it has ended. Raises RolloutError if that fails, or has
        happened too often."""
        if running := self.running():
            return running
        with release_thread(), self._starting:
            if not self.running():
                self._found = self._start_again()
            assert self._found
            return self._found

    def running(self) -> WorkerProcess | None:
        """The process, if there is one that has not ended."""
        return self._found if self._found and not self._found.is_over else None

    def begin_step(self, seed: str | None) -> None:
        """Count anew the processes that end, and seed the random generators of the process, if there is a seed, and of
        those that replace it."""
        self._num_in_a_row = 0
        if seed is None:
            return
        self._seed = f"{seed}/seat {self._number}" if self._number else seed
        # A process that ended before gets the same state in its place as one that lived on.
        self._num_deaths = 0 if self.running() or not self._found else -1
        if running := self.running():
            with suppress(RolloutError):  # of a process that has ended: the next one gets the same
                running.ask_episode("seed", text=self._seed)

    def close(self) -> None:
        """Ends the process."""
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
            self._num_in_a_row, process.has_stepped = 0, False  # it counts once, though no other may start after it
        if self._num_in_a_row == MAX_DEATHS:
            raise RolloutError(
                "environment_died",
                f"its process has ended {MAX_DEATHS} times without answering a step, and is not started again before "
                f"the next training step; the last time {process.end}",
            )
        self._num_deaths += 1
        self._num_in_a_row += 1
