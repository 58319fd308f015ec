"""The module keeps the worker processes of a taskset alive: each has a seat, and one that ends is replaced there."""

import threading
from collections.abc import Callable
from contextlib import suppress

from slimrl.errors import RolloutError, UserError
from slimrl.rollout.held import release_thread
from slimrl.rollout.worker.process import WorkerProcess

MAX_DEATHS = 64  # in a row, without a step that was answered, before the next training step


class Seat:
    """A place for one worker process after the other. `start` starts one, and `prepare` makes it ready to be asked;
    `number` tells the seats of a taskset apart, from 0 on."""

    def __init__(
        self,
        number: int,
        start: Callable[[], WorkerProcess],
        prepare: Callable[[WorkerProcess], None],
        process: WorkerProcess | None = None,
    ) -> None:
        self._number, self._start, self._prepare = number, start, prepare
        self._found = process
        self._starting = threading.Lock()  # episodes and the run itself ask in threads of their own
        self._seed = ""
        self._num_deaths, self._num_in_a_row = 0, 0  # since the generators were seeded, and since a step was answered

    def process(self) -> WorkerProcess:
        """The process, which is started if there is none or it has ended. Raises RolloutError if that fails, or has
        happened too often."""
        if not (found := self._found) or found.is_over:
            with release_thread(), self._starting:
                if not self._found or self._found.is_over:
                    self._found = self._start_again()
                return self._found
        return found

    def running(self) -> WorkerProcess | None:
        """The process, if there is one that has not ended."""
        return self._found if self._found and not self._found.is_over else None

    def allow_restarts(self) -> None:
        """Counts from now on the processes that end without having answered a step."""
        self._num_in_a_row = 0

    def seed(self, text: str) -> None:
        """Seeds the random generators of the process, and of those that come after it."""
        # A process that ended before gets the same state in its place as one that lived on.
        self._seed = f"{text}/seat {self._number}" if self._number else text
        self._num_deaths = 0 if self.running() or not self._found else -1
        self.allow_restarts()
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
            process = self._start()
        except UserError as error:
            raise RolloutError("environment_died", f"no process could be started for it: {error}") from error
        try:
            self._prepare(process)
            if self._seed:
                text = f"{self._seed}/{self._num_deaths}" if self._num_deaths else self._seed
                process.ask_episode("seed", text=text)
        except UserError as error:
            process.close()
            raise RolloutError("environment_died", f"its process could not be started again: {error}") from error
        except BaseException:
            process.close()
            raise
        return process

    def _count_death(self, process: WorkerProcess) -> None:
        if self._num_in_a_row == MAX_DEATHS:
            raise RolloutError(
                "environment_died",
                f"its process has ended {MAX_DEATHS} times without answering a step, and is not started again before "
                f"the next training step; the last time {process.end}",
            )
        self._num_deaths += 1
        self._num_in_a_row += 1
