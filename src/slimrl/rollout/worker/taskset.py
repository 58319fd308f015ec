"""Defines a taskset whose code runs in worker processes. A worker process that dies is replaced."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from slimrl.errors import RolloutError, UserError, visible
from slimrl.io.rollout_json import encode_rollout
from slimrl.rollout.worker.process import LOST, Source, WorkerProcess
from slimrl.rollout.worker.program import Start, start_here
from slimrl.types import Environment, Message, Rollout, Script, Split, Task, Taskset, Turn

MAX_REPLAYS = 64  # an episode is replayed at most so many times
Opened = tuple[WorkerProcess, str]  # an episode: its process, and its name in the process
Question = tuple[str, Mapping[str, Any]]


def load_in_worker(source: Source, start: Start = start_here) -> "RemoteTaskset":
    """Load the taskset in a worker process and return it. Raise the same UserErrors as `load_taskset`."""
    return RemoteTaskset(source, [partial(WorkerProcess, source, start)])


def load_in_workers(source: Source, starts: Sequence[Start]) -> "RemoteTaskset":
    """Load the taskset in several processes that share the episodes. Each function in `starts` starts one process.
    Raise the same UserErrors as `load_taskset`."""
    return RemoteTaskset(source, [partial(WorkerProcess, source, start, waits_alone=True) for start in starts])


class RemoteTaskset(Taskset):
    """A taskset whose methods send requests to its worker processes."""

    def __init__(self, source: Source, starts: Sequence[Callable[[], WorkerProcess]]) -> None:
        self._known: list[Question] = [
            ("load", {"id": source.env_id, "args": dict(source.args), "timeout_s": source.timeout_s})
        ]
        self._seats = [Seat(number, start, self._known) for number, start in enumerate(starts)]
        weakref.finalize(self, _close_all, self._seats)
        self._tasks: dict[Split, list[Task]] = {}
        self._num_opened = 0
        about = self._seats[0].open().ask_class("describe")
        self.class_name, self.purpose = str(about["name"]), str(about["purpose"])
        self.roles, self._scripts = list(about["roles"]), list(about["scripts"])
        self._own = set(about["own"])

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in self._tasks:
            found: list[Task] = []
            while page := self._process().ask_class("tasks", split=split, first=len(found)):
                found += (Task(*task) for task in page)
            self._tasks[split] = found
            self._known.append(("tasks", {"split": split, "first": 0}))
        return self._tasks[split]

    def environment(self, task: Task) -> Environment:
        return RemoteEpisode(self, task)

    @property
    def scripts(self) -> Mapping[str, Script]:
        return {name: partial(self._play, name) for name in self._scripts}

    def _play(self, name: str, task: Task, seed: int) -> list[Message]:
        answer: list[Message] = self._process().ask("script", name=name, task=_as_json(task), seed=seed)
        return answer

    def failure_kind(self, rollout: Rollout) -> str | None:
        if "failure_kind" not in self._own:
            return ""
        task = [rollout.task_id, rollout.task_data]
        kind = self._process().ask("failure_kind", task=task, rollout=encode_rollout(rollout))
        return None if kind is None else visible(str(kind))

    def self_play(self, task: Task) -> Sequence[Environment]:
        process = self._next_seat().process()
        names = process.ask("self_play", task=_as_json(task))
        return [RemoteEpisode(self, None, (process, str(name))) for name in names]

    def prepare(self) -> None:
        self._process().ask_class("prepare")
        self._known.append(("prepare", {}))  # processes that start later must prepare too

    def offload(self) -> None:
        for running in filter(None, (seat.running() for seat in self._seats if "offload" in self._own)):
            with suppress(RolloutError):  # the process has ended, so it holds no memory
                running.ask("offload")

    def begin_step(self, seed: str | None) -> None:
        for seat in self._seats:
            seat.begin_step(seed)

    async def open_episode(self, task: Task) -> Opened:
        """Open a new episode of the task in the next process, round robin. If this process must be started first, the
        other processes continue meanwhile."""
        seat = self._next_seat()
        if len(self._seats) > 1 and not seat.running():
            process = await asyncio.get_running_loop().run_in_executor(None, seat.process)
        else:
            process = seat.process()
        (name,) = await process.call("environment", task=_as_json(task))
        return process, str(name)

    def _next_seat(self) -> "Seat":
        self._num_opened += 1
        return self._seats[(self._num_opened - 1) % len(self._seats)]

    def _process(self) -> WorkerProcess:
        """Return the process that answers requests about the taskset. Raise RolloutError if it cannot be started."""
        return self._seats[0].process()


class Seat:
    """Holds one worker process, and replaces the process after its death. `start` starts a process. Every new process
    first receives the requests in `known`: they load the environment class and restore its current state. `number` is
    the index of this object within the taskset."""

    def __init__(self, number: int, start: Callable[[], WorkerProcess], known: Sequence[Question]) -> None:
        self._number, self._start, self._known = number, start, known
        self._found: WorkerProcess | None = None
        self._starting = threading.Lock()  # episodes and the run send requests from different threads
        self._seed = ""
        self._num_deaths = 0  # since the random generators were seeded
        self._late = ""  # the error of a start that took too long

    def open(self) -> WorkerProcess:
        """Start the first process and return it. Raise UserError if the process cannot load the environment class."""
        self._found = self._new_process()
        return self._found

    def process(self) -> WorkerProcess:
        """Return the running process, or start a new process. Raise RolloutError if the start fails. After a start that
        took too long, wait for the next training step to start a process again."""
        if running := self.running():
            return running
        with self._starting:
            if not self.running():
                self._found = self._start_again()
            assert self._found
            return self._found

    def running(self) -> WorkerProcess | None:
        """Return the process, or None if it has ended."""
        return self._found if self._found and not self._found.is_over else None

    def begin_step(self, seed: str | None) -> None:
        """Allow a start after one that took too long. If `seed` is not None, seed the random generators now and after
        every restart."""
        self._late = ""
        if seed is None:
            return
        self._seed = f"{seed}/seat {self._number}" if self._number else seed
        # If the process is dead now, its replacement gets the same seed as a process that survived.
        self._num_deaths = 0 if self.running() or not self._found else -1
        if running := self.running():
            with suppress(RolloutError):  # the process has just ended: the next process gets the same seed
                running.ask("seed", text=self._seed)

    def close(self) -> None:
        """End the process."""
        if self._found:
            self._found.close()

    def _start_again(self) -> WorkerProcess:
        if self._late:
            raise RolloutError("environment_died", self._late)
        if self._found:
            self._num_deaths += 1
        try:
            return self._new_process()
        except UserError as error:
            detail = f"no process could be started for it: {error}"
            if isinstance(error.__cause__, RolloutError) and error.__cause__.reason == "timeout":
                self._late = detail
            raise RolloutError("environment_died", detail) from error

    def _new_process(self) -> WorkerProcess:
        process = self._start()
        try:
            for do, fields in self._known:
                process.ask_class(do, **fields)
            if self._seed:
                text = f"{self._seed}/{self._num_deaths}" if self._num_deaths else self._seed
                process.ask("seed", text=text)
        except BaseException:
            process.close()
            raise
        return process


def _close_all(seats: list[Seat]) -> None:
    for seat in seats:
        seat.close()


def _as_json(task: Task) -> list[Any]:
    return [task.id, task.data]


class RemoteEpisode:
    """An episode in a worker process. The first request opens the episode in the worker. The worker's answers are
    checked like the answers of any environment (`rollout/answers.py`).

    If another episode ends the process, this episode is replayed in a new process. The episode continues there if the
    replayed answers equal the earlier answers. An episode of self-play is `opened` in advance and has no `task`, so it
    cannot be replayed.
    """

    def __init__(self, taskset: RemoteTaskset, task: Task | None, opened: Opened | None = None) -> None:
        self._taskset, self._task, self._opened = taskset, task, opened
        self._past: list[tuple[str, dict[str, str], Any]] = []  # the requests so far, with their answers
        self._num_replays = 0

    async def start(self) -> list[Message]:
        messages: list[Message] = await self._ask("start")
        return messages

    async def step(self, reply: str) -> Turn:
        return Turn(*await self._ask("step", reply=reply))

    async def cut_off(self) -> Turn | None:
        fields = await self._ask("cut_off")
        return fields and Turn(*fields)

    async def close(self) -> None:
        if self._opened and not self._opened[0].is_over:  # else nothing is left to release
            await self._opened[0].call("close", episode=self._opened[1])

    async def _ask(self, do: str, **fields: str) -> Any:
        while True:
            try:
                process, name = await self._open()
                answer = await process.call(do, episode=name, **fields)
            except RolloutError as error:
                is_open = self._opened is not None and not self._opened[0].is_over
                if error.reason != LOST or self._task is None or is_open or self._num_replays == MAX_REPLAYS:
                    raise
                self._num_replays += 1
            else:
                self._past.append((do, fields, answer))
                return answer

    async def _open(self) -> Opened:
        """Return the running process, and the name of the episode in this process. If the previous process has ended,
        replay the episode in another process."""
        if self._opened and not self._opened[0].is_over:
            return self._opened
        end = self._opened[0].end if self._opened else ""
        lost = f"the process that played it was ended, not by this episode: {end}"
        if self._task is None:
            raise RolloutError(LOST, lost)
        self._opened = None
        self._opened = process, name = await self._taskset.open_episode(self._task)
        for do, fields, answer in self._past:
            if await process.call(do, episode=name, **fields) != answer:
                raise RolloutError(LOST, f"{lost}. Played again, it took another course")
        return process, name
