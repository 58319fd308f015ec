"""A taskset whose code runs in one or more worker processes, which are restarted when they die."""

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from slimrl.errors import RolloutError, visible
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json
from slimrl.rollout.worker.process import LOAD_TIMEOUT_S, LOST, Source, WorkerProcess
from slimrl.rollout.worker.program import Start
from slimrl.rollout.worker.seat import Question, Seat
from slimrl.types import Environment, Message, Rollout, Script, Split, Task, Taskset, Turn

Opened = tuple[WorkerProcess, str]  # an episode: its process, and its name there


def load_in_worker(source: Source, variables: Mapping[str, str] | None = None) -> "RemoteTaskset":
    """Load the taskset in a worker process, with `variables` added to its environment variables. Raise UserError as
    `load_taskset` does."""
    return RemoteTaskset(source, [partial(WorkerProcess, source, variables=variables)])


def load_on_hosts(source: Source, starts: Sequence[Start]) -> "RemoteTaskset":
    """Load the taskset in several processes, one per function in `starts`, which may start it on another machine. The
    processes share the episodes. Raise UserError as `load_taskset` does."""
    return RemoteTaskset(source, [partial(WorkerProcess, source, start, waits_alone=True) for start in starts])


class RemoteTaskset(Taskset):
    """A taskset whose methods send questions to its worker processes."""

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
        self.roles, self.group_reward_names = list(about["roles"]), list(about["group_rewards"])
        self._scripts, self._own = list(about["scripts"]), set(about["own"])

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in self._tasks:
            found: list[Task] = []
            while page := self._ask_class("tasks", split=split, first=len(found)):
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
        kind = self._process().ask_episode("failure_kind", rollout=_line(rollout))
        return None if kind is None else visible(str(kind))

    def self_play(self, task: Task) -> Sequence[Environment]:
        process = self._next_seat().process()
        names = process.ask_episode("self_play", task=_as_json(task))
        return [RemoteEpisode(self, None, (process, str(name))) for name in names]

    def group_rewards(self, task: Task, rollouts: Sequence[Rollout]) -> Mapping[str, Sequence[float]]:
        lines = [_line(rollout) for rollout in rollouts]
        rewards: dict[str, list[float]] = self._process().ask_episode(
            "group_rewards", task=_as_json(task), rollouts=lines
        )
        return rewards

    def prepare(self) -> None:
        self._ask_class("prepare")
        self._known.append(("prepare", {}))  # processes that start later must prepare too

    def offload(self) -> None:
        for running in filter(None, (seat.running() for seat in self._seats if "offload" in self._own)):
            with suppress(RolloutError):  # the process has ended, so it holds no memory
                running.ask("offload", LOAD_TIMEOUT_S)

    def begin_step(self, seed: str | None) -> None:
        for seat in self._seats:
            seat.begin_step(seed)

    async def open_episode(self, task: Task) -> Opened:
        """Open a new episode on the task. Successive calls use the processes in turn. If a process must be started
        first, the other processes continue meanwhile."""
        seat = self._next_seat()
        if len(self._seats) > 1 and not seat.running():
            process = await asyncio.get_running_loop().run_in_executor(None, seat.process)
        else:
            process = seat.process()
        (name,) = await process.call("environment", task=_as_json(task))
        return process, str(name)

    def _next_seat(self) -> Seat:
        self._num_opened += 1
        return self._seats[(self._num_opened - 1) % len(self._seats)]

    def _ask_class(self, do: str, **fields: Any) -> Any:
        return self._process().ask_class(do, **fields)

    def _process(self) -> WorkerProcess:
        """Return the process for questions without an episode. Raise RolloutError if it cannot be started."""
        return self._seats[0].process()


def _close_all(seats: list[Seat]) -> None:
    for seat in seats:
        seat.close()


def _as_json(task: Task) -> list[Any]:
    return [task.id, task.data]


def _line(rollout: Rollout) -> dict[str, Any]:
    return rollout_to_json(RolloutRecord(rollout, (), ""))


class RemoteEpisode:
    """An episode in a worker process. The worker opens the episode at its start. The episode's answers are checked like
    the answers of any environment (`rollout/answers.py`).

    If another episode ends the process, this episode is replayed in the next process, and continues there if all
    answers are the same as before. An episode of self-play is `opened` in advance and has no `task`, so it cannot be
    replayed.
    """

    def __init__(self, taskset: RemoteTaskset, task: Task | None, opened: Opened | None = None) -> None:
        self._taskset, self._task, self._opened = taskset, task, opened
        self._past: list[tuple[str, dict[str, str], Any]] = []  # questions and answers

    async def start(self) -> list[Message]:
        messages: list[Message] = await self._ask("start")
        return messages

    async def step(self, reply: str) -> Turn:
        done, messages, reward, metrics = await self._ask("step", reply=reply)
        return Turn(done, messages, reward, metrics)

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
                if error.reason != LOST or self._task is None or is_open:
                    raise
            else:
                self._past.append((do, fields, answer))
                return answer

    async def _open(self) -> Opened:
        """Return the running process and the name of the episode there. If the previous process has ended, replay the
        episode in another process."""
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
