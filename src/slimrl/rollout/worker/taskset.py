"""A taskset whose code runs in worker processes, one or several, which are started anew when they have ended.

It has the methods that the environment's own taskset has, and no others, so it passes for that one everywhere.
"""

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slimrl.environments.base import Environment, Script
from slimrl.errors import RolloutError, UserError, visible
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json
from slimrl.rollout.worker.process import LOST, WorkerProcess
from slimrl.rollout.worker.program import Start, start_here
from slimrl.rollout.worker.seat import Seat
from slimrl.types import Message, Rollout, Split, Task, Taskset, Turn

LOAD_TIMEOUT_S = 300.0  # for a class to be loaded and made, and for its tasks

# What a process is asked about its class, in words.
QUESTIONS = {"find": "be loaded", "load": "be made", "tasks": "give its tasks"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a taskset comes from, the limit of each call into its episodes, and of the memory of its processes in GB,
    where 0 is none."""

    env_id: str
    args: Mapping[str, Any]
    timeout_s: float
    memory_gb: float = 0.0

    @property
    def load_timeout_s(self) -> float:
        return max(LOAD_TIMEOUT_S, self.timeout_s)

    def ask(self, process: WorkerProcess, do: str, **fields: Any) -> Any:
        """The answer to a question about the class. Raises UserError if the process ends or gives none."""
        try:
            return process.ask(do, self.load_timeout_s, **fields)
        except RolloutError as error:
            advice = ""
            if error.reason == "timeout":
                advice = (
                    ". What takes long belongs into its `prepare()`, which has no limit; a larger `episode_timeout_s` "
                    "raises this one, too"
                )
            raise UserError(
                f"environment `{self.env_id}` could not {QUESTIONS[do]}: {error.detail}{advice}."
            ) from error


def find_in_worker(source: Source, variables: Mapping[str, str] | None = None) -> WorkerProcess:
    """A process that has found the class, which takes the args; it is not called. `variables` are added to the
    process's environment. Raises UserError as `find_constructor` does."""
    process = WorkerProcess(source.timeout_s, variables, memory_gb=source.memory_gb)
    try:
        source.ask(process, "find", id=source.env_id, args=dict(source.args))
    except BaseException:
        process.close()
        raise
    return process


def load_in_worker(source: Source, process: WorkerProcess) -> Taskset:
    """The taskset, made in a process that has found its class. Raises UserError as `load_taskset` does."""
    try:
        told = _load(source, process)
    except BaseException:
        process.close()
        raise
    return _make(source, told, [start_here], process)


def load_on_hosts(source: Source, starts: Sequence[Start]) -> Taskset:
    """The taskset, whose episodes are shared among as many processes as there are `starts`, each on the machine that
    its own says. Raises UserError as `load_taskset` does."""
    process = WorkerProcess(source.timeout_s, None, starts[0], source.memory_gb, waits_alone=True)
    try:
        told = _load(source, process)
    except BaseException:
        process.close()
        raise
    return _make(source, told, starts, process)


def _make(source: Source, told: Mapping[str, Any], starts: Sequence[Start], process: WorkerProcess) -> Taskset:
    kinds = [kind for key, kind in OPTIONAL.items() if told[key] not in (None, False)]
    # The class has the name of the environment's own, which messages show.
    made: type[RemoteTaskset] = type(told["name"], (*kinds, RemoteTaskset), {})
    return made(source, told, starts, process)


def _load(source: Source, process: WorkerProcess) -> dict[str, Any]:
    fields = {"id": source.env_id, "args": dict(source.args), "timeout_s": source.timeout_s}
    told = source.ask(process, "load", **fields)
    texts = [
        told["name"],
        told["purpose"],
        *(told["scripts"] or ()),
        *(told["roles"] or ()),
        *(told["group_rewards"] or ()),
    ]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"environment `{source.env_id}`: the names of its scripts, roles and rewards must be texts.")
    return dict(told)


@dataclass(slots=True)
class _Known:
    """What the first process of a taskset has been asked, and every other must be: no part of the taskset, which ends
    its processes when nobody holds it any more."""

    source: Source
    is_prepared: bool = False
    splits: list[Split] = field(default_factory=list)

    def make_ready(self, process: WorkerProcess) -> None:
        """Have a new process know what the first one knows."""
        _load(self.source, process)
        if self.is_prepared:
            process.ask("prepare")
        for split in self.splits:
            self.source.ask(process, "tasks", split=split)


Opened = tuple[Seat, WorkerProcess, str]  # an episode: its seat, the process that holds it, and its name there


class RemoteTaskset:
    """What the taskset of every environment has."""

    def __init__(
        self, source: Source, told: Mapping[str, Any], starts: Sequence[Start], process: WorkerProcess
    ) -> None:
        """`process` is the first of those that `starts` start, with the taskset loaded."""
        self._source, self._told = source, told
        self._tasks: dict[Split, list[Task]] = {}
        self._known = known = _Known(source)
        are_several = len(starts) > 1 or starts[0] is not start_here

        def opener(start: Start) -> Callable[[], WorkerProcess]:
            return lambda: WorkerProcess(source.timeout_s, None, start, source.memory_gb, are_several)

        self._seats = [
            Seat(number, opener(start), known.make_ready, None if number else process)
            for number, start in enumerate(starts)
        ]
        self._num_opened = 0
        weakref.finalize(self, _close_all, self._seats)

    @property
    def purpose(self) -> str:
        """What the environment is, in the words of its module."""
        return str(self._told["purpose"])

    def tasks(self, split: Split) -> Sequence[Task]:
        if split not in self._tasks:
            self._tasks[split] = self._ask_tasks(split)
            self._known.splits.append(split)
        return self._tasks[split]

    def environment(self, task: Task) -> Environment:
        if len(self._seats) > 1:  # then others go on while this one is opened
            return RemoteEpisode(self, None, task)
        return RemoteEpisode(self, self.open_episodes("environment", task)[0], task)

    def allow_restarts(self) -> None:
        for seat in self._seats:
            seat.allow_restarts()

    def seed_generators(self, text: str) -> None:
        for seat in self._seats:
            seat.seed(text)

    def open_episodes(self, do: str, task: Task) -> list[Opened]:
        """Fresh episodes on the task, each a name in the process that holds it. Processes have their turns."""
        seat = self._next_seat()
        process = seat.process()
        return [(seat, process, str(name)) for name in process.ask_episode(do, task=[task.id, task.data])]

    async def open_episode(self, task: Task) -> Opened:
        """A fresh episode on the task. Where there are several processes, others go on meanwhile."""
        seat = self._next_seat()
        process = seat.running()
        if process is None and len(self._seats) > 1:
            process = await asyncio.get_running_loop().run_in_executor(None, seat.process)
        elif process is None:
            process = seat.process()
        (name,) = await process.call("environment", task=[task.id, task.data])
        return seat, process, str(name)

    def _next_seat(self) -> Seat:
        self._num_opened += 1
        return self._seats[(self._num_opened - 1) % len(self._seats)]

    def _ask_tasks(self, split: Split) -> list[Task]:
        return [Task(*task) for task in self._source.ask(self._process(), "tasks", split=split) or ()]

    def _process(self) -> WorkerProcess:
        """The process that is asked what is about no episode. Raises RolloutError if it cannot be had."""
        return self._seats[0].process()


def _close_all(seats: list[Seat]) -> None:
    for seat in seats:
        seat.close()


class _WithScripts(RemoteTaskset):
    @property
    def scripts(self) -> Mapping[str, Script]:
        return {name: partial(self._play, name) for name in self._told["scripts"]}

    def _play(self, name: str, task: Task, seed: int) -> list[Message]:
        answer: list[Message] = self._process().ask("script", name=name, task=[task.id, task.data], seed=seed)
        return answer


class _WithFailureKinds(RemoteTaskset):
    def failure_kind(self, rollout: Rollout) -> str | None:
        record = rollout_to_json(RolloutRecord(rollout, (), ""))
        kind = self._process().ask_episode("failure_kind", rollout=record)
        return None if kind is None else visible(str(kind))


class _WithSelfPlay(RemoteTaskset):
    @property
    def roles(self) -> Sequence[str]:
        return list(self._told["roles"])

    def self_play(self, task: Task) -> Sequence[Environment]:
        return [RemoteEpisode(self, opened, None) for opened in self.open_episodes("self_play", task)]


class _WithGroupRewards(RemoteTaskset):
    @property
    def group_reward_names(self) -> Sequence[str]:
        return list(self._told["group_rewards"])

    def group_rewards(self, task: Task, rollouts: Sequence[Rollout]) -> Mapping[str, Sequence[float]]:
        lines = [rollout_to_json(RolloutRecord(rollout, (), "")) for rollout in rollouts]
        given: dict[str, list[float]] = self._process().ask_episode(
            "group_rewards", task=[task.id, task.data], rollouts=lines
        )
        return given


class _Prepared(RemoteTaskset):
    def prepare(self) -> None:
        self._process().ask("prepare")
        self._known.is_prepared = True  # those that are started later prepare themselves


class _Offloaded(RemoteTaskset):
    def offload(self) -> None:
        for running in filter(None, (seat.running() for seat in self._seats)):
            with suppress(RolloutError):  # of a process that has ended, which holds no memory
                running.ask("offload", self._source.load_timeout_s)


# What a taskset may have besides, by what the worker tells of it.
OPTIONAL = {
    "scripts": _WithScripts,
    "failure_kind": _WithFailureKinds,
    "group_rewards": _WithGroupRewards,
    "roles": _WithSelfPlay,
    "prepare": _Prepared,
    "offload": _Offloaded,
}


class RemoteEpisode:
    """An episode in a worker process. What it gives is checked as any environment's is (`answers.py`).

    If another episode ends the process, this one is played again up to where it was, in the next process, and goes on
    if all answers are the same. An episode of self-play has no `task` to be played again.
    """

    def __init__(self, taskset: RemoteTaskset, opened: Opened | None, task: Task | None) -> None:
        """Without `opened`, it is opened when it starts."""
        self._taskset, self._opened, self._task = taskset, opened, task
        self._past: list[tuple[dict[str, str], Any]] = []  # questions and answers

    async def start(self) -> list[Message]:
        messages: list[Message] = await self._call({"do": "start"})
        return messages

    async def step(self, reply: str) -> Turn:
        done, messages, reward, metrics = await self._call({"do": "step", "reply": reply})
        if self._opened:
            self._opened[0].allow_restarts()  # its process does not end before it can answer a step
        return Turn(done, messages, reward, metrics)

    async def close(self) -> None:
        if self._opened and not self._opened[1].is_over:  # else there is nothing left to give back
            await self._opened[1].call("close", episode=self._opened[2])

    async def _call(self, asked: dict[str, str]) -> Any:
        while True:
            try:
                _, process, name = await self._open()
                answer = await process.call(episode=name, **asked)
            except RolloutError as error:
                is_open = self._opened is not None and not self._opened[1].is_over
                if error.reason != LOST or self._task is None or is_open:
                    raise
            else:
                self._past.append((asked, answer))
                return answer

    async def _open(self) -> Opened:
        """The episode in a process that runs; it is played again up to where it was if that of before has ended."""
        if self._opened and not self._opened[1].is_over:
            return self._opened
        before, self._opened = self._opened, None
        end = before[1].end if before else ""
        lost = RolloutError(LOST, f"the process that played it was ended, not by this episode: {end}")
        if self._task is None:
            raise lost
        self._opened = opened = await self._taskset.open_episode(self._task)
        for asked, answer in self._past:
            if await opened[1].call(episode=opened[2], **asked) != answer:
                raise RolloutError(LOST, f"{lost.detail}. Played again, it took another course")
        return opened
