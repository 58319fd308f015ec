"""Implements the program of a worker process. It holds one environment's taskset, plays episodes and answers the run.

Episodes run in an event loop, as in the run's process. After each request, the worker sends a report to the run as soon
as no episode computes any more. The run blocks until this report. So an environment's step blocks the run while it
computes, but not while it awaits something. Requests about the taskset are answered while the loop is stopped.

The worker ends when the run ends. If memory runs out, the kernel kills the worker instead of the run. Orphaned
descendants become children of the worker's parent, which kills them. A fork of the worker never sends anything to the
run.
"""

import asyncio
import copy
import ctypes
import hashlib
import json
import os
import random
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from slimrl.environments.base import is_default, new_episode
from slimrl.environments.find import load_taskset, prepare_taskset, tasks_of
from slimrl.environments.scripts import play_script
from slimrl.errors import RolloutError, UserError
from slimrl.io.process_tree import processes
from slimrl.io.rollout_json import decode_rollout
from slimrl.io.user_code import call_user_code
from slimrl.rollout.answers import close_episode, cut_episode, start_episode, step_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.rollout.worker.wire import MAX_BYTES, REASON, WireError, encode, receive_message, send_message
from slimrl.types import Environment, Task, Taskset, Turn

# prctl(2)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ABOUT_EPISODES = (
    "environment",
    "self_play",
    "start",
    "step",
    "cut_off",
    "close",
)  # requests that are answered in the event loop
MAX_TURNS = 100  # turns of the event loop after which the worker reports although it does not wait: it may be polling
PAGE_BYTES = 1 << 20  # size of a message with tasks
MAX_TASK_BYTES = MAX_BYTES // 2  # maximum size of a task, because rollouts are sent together with their task
OPTIONAL = ("failure_kind", "offload")  # methods that are called only if the class overrides them
MB = 1e6
MAX_GENERATIONS = 100  # generations of descendants to kill
BROKEN = 70  # the exit status after an error in the worker's code, EX_SOFTWARE


def main(descriptor: int) -> None:
    """Answer the run's requests until it closes the connection. `descriptor` is the socket's file descriptor."""
    if sys.platform == "linux":
        _become_child(descriptor)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    os.register_at_fork(after_in_child=_die_with_parent)
    os.register_at_fork(after_in_child=sock.close)
    try:
        Worker(sock).run()
    except BaseException:
        # The environment may have broken anything, such as the recursion limit.
        traceback.print_exc()
        os._exit(BROKEN)


def _become_child(descriptor: int) -> None:
    """Fork, close `descriptor` in the parent, and return only in the child. The parent waits until the child or the run
    ends, and then kills all its descendants. It is a subreaper, so it also finds daemons that have left its session."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, lambda *_: _end(-signal.SIGTERM))
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    worker = os.fork()
    if not worker:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _die_with_parent()
        return
    os.close(descriptor)
    while True:
        pid, status = os.wait()  # also returns for adopted daemons
        if pid == worker:
            _end(os.waitstatus_to_exitcode(status))


def _end(status: int) -> NoReturn:
    """Kill all descendants, one generation after the other: the children of a killed process become children of this
    process. Then exit with `status`, the worker's exit status. If `status` is negative, die of the same signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(MAX_GENERATIONS):
        children = [pid for pid, one in processes().items() if one.parent == os.getpid()]
        if not children:
            break
        for pid in children:
            with suppress(OSError):  # a process of another user
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(max(0, status))


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class _Selector(selectors.PollSelector):
    """A selector that calls `pause` in every turn of the event loop. The argument is True if the loop is about to wait.
    The selector uses poll, not epoll, because a fork would share the epoll state with its parent."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        super().__init__()
        self._pause = pause

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._pause(timeout is None or timeout > 0)
        return super().select(timeout)


class Worker:
    """The server in a worker process. It answers the run's requests about one taskset."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._pid = sock, os.getpid()
        self._taskset: Taskset
        self._timeout_s = 0.0
        self._tasks: dict[str, dict[str, Task]] = {}  # tasks of the taskset, by split and id
        self._episodes: dict[str, Environment] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        # Requests about the taskset are answered while this loop is stopped, because the taskset may run another loop.
        self._waiting: list[Mapping[str, Any]] = []
        self._asked, self._told, self._num_turns = 0, 0, 0
        self._is_over = False
        self._loop = asyncio.SelectorEventLoop(_Selector(self._pause))
        self._loop.add_reader(sock, self._receive)
        asyncio.set_event_loop(self._loop)

    def run(self) -> None:
        """Answer requests until the connection closes."""
        while not self._is_over:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # from a task or callback that an environment left behind
                traceback.print_exc()
            while self._waiting:
                self._answer_outside(self._waiting.pop(0))
        self._loop.remove_reader(self._sock)
        if left := list(self._calls.values()):
            for call in left:
                call.cancel()
            self._loop.run_until_complete(asyncio.wait(left))

    def _receive(self) -> None:
        try:
            message = receive_message(self._sock)
        except (OSError, WireError):  # the environment has closed the socket
            os._exit(BROKEN)
        if message is None:
            self._is_over = True
            self._loop.stop()
            return
        self._asked, self._num_turns = message["call"], 0
        if message["do"] == "cancel":
            if call := self._calls.get(message["of"]):
                call.cancel()
        elif message["do"] in ABOUT_EPISODES:
            self._calls[message["call"]] = self._loop.create_task(self._answer(message))
        else:
            self._waiting.append(message)
            self._loop.stop()

    def _pause(self, is_idle: bool) -> None:
        """Send the `quiet` report if the event loop is idle. After MAX_TURNS turns of the loop, send the report in any
        case, because an environment may poll without a pause."""
        if os.getpid() != self._pid:
            os._exit(0)
        self._num_turns += 1
        if self._told < self._asked and (is_idle or self._num_turns > MAX_TURNS):
            self._told = self._asked
            self._send({"quiet": self._asked})

    async def _answer(self, message: Mapping[str, Any]) -> None:
        try:
            answer = await run_with_timeout(self._ask_episode(message), "environment", self._timeout_s)
            reply = {"answer": answer}
        except (RolloutError, UserError, asyncio.CancelledError) as error:  # cancelled by the run
            reply = _failure(error)
        del self._calls[message["call"]]
        self._reply(message, reply)

    def _answer_outside(self, message: Mapping[str, Any]) -> None:
        try:
            reply = {"answer": self._ask_taskset(message)}
        except (RolloutError, UserError) as error:
            reply = _failure(error)
        self._reply(message, reply)

    def _reply(self, message: Mapping[str, Any], reply: dict[str, Any]) -> None:
        try:
            self._send({"call": message["call"], **reply})
        except WireError as error:
            self._send({"call": message["call"], "failed": ["environment_error", str(error)]})
        except Exception:
            traceback.print_exc()
            os._exit(BROKEN)

    def _send(self, message: dict[str, Any]) -> None:
        if os.getpid() != self._pid:  # a fork by an environment, which continued as the worker
            os._exit(0)
        try:
            send_message(self._sock, message)
        except OSError:  # the environment closed the socket, or the run has ended
            os._exit(BROKEN)

    async def _ask_episode(self, message: Mapping[str, Any]) -> Any:
        match message:
            case {"do": "environment"}:
                return self._keep(message, [new_episode(self._taskset, self._task(message))])
            case {"do": "self_play"}:
                return self._keep(message, self._taskset.self_play(copy.deepcopy(self._task(message))))
            case {"do": "start", "episode": name}:
                return await start_episode(self._episodes[name])
            case {"do": "step", "episode": name, "reply": reply}:
                return _fields(await step_episode(self._episodes[name], reply))
            case {"do": "cut_off", "episode": name}:
                turn = await cut_episode(self._episodes[name])
                return turn and _fields(turn)
            case {"do": "close", "episode": name}:
                await close_episode(self._episodes.pop(name))
        return None

    def _keep(self, message: Mapping[str, Any], episodes: Sequence[Environment]) -> list[str]:
        """Store new episodes and return the names by which the run refers to them."""
        named = {f"{message['call']}/{place}": episode for place, episode in enumerate(episodes)}
        self._episodes |= named
        return list(named)

    def _ask_taskset(self, message: Mapping[str, Any]) -> Any:
        match message:
            case {"do": "load", "id": env_id, "args": args, "timeout_s": timeout_s}:
                self._taskset, self._timeout_s = load_taskset(env_id, args), timeout_s
            case {"do": "describe"}:
                return call_user_code(f"environment `{self._taskset.class_name}` failed", self._describe)
            case {"do": "prepare"}:
                prepare_taskset(self._taskset)
            case {"do": "offload"}:
                call_user_code("offload() failed", self._taskset.offload)
            case {"do": "seed", "text": text}:
                if not self._episodes:  # an evaluation must not change the numbers of episodes in flight
                    _seed(text)
            case {"do": "tasks", "split": split, "first": first}:
                if split not in self._tasks:  # the first page creates all tasks
                    self._tasks[split] = {task.id: task for task in tasks_of(self._taskset, split)}
                return _page(islice(self._tasks[split].values(), first, None))
            case {"do": "script", "name": name, "seed": seed}:
                return play_script(self._taskset, name, self._task(message), seed)
            case {"do": "failure_kind", "rollout": values}:
                rollout = decode_rollout(values, self._task(message).data)
                return call_user_code("failure_kind() failed", lambda: self._taskset.failure_kind(rollout))
        return None

    def _describe(self) -> dict[str, Any]:
        taskset = self._taskset
        return {
            "name": taskset.class_name,
            "purpose": taskset.purpose,
            "scripts": list(map(str, taskset.scripts)),
            "roles": list(map(str, taskset.roles)),
            "own": [name for name in OPTIONAL if not is_default(taskset, name)],
        }

    def _task(self, message: Mapping[str, Any]) -> Task:
        """Return the task of a request. If the taskset's list has an equal task, return the task from the list: the
        request's task is a copy in which JSON has converted tuples to lists."""
        task = Task(*message["task"])
        found = (tasks[task.id] for tasks in self._tasks.values() if task.id in tasks)
        return next((one for one in found if json.loads(json.dumps(one.data)) == task.data), task)


def _page(tasks: Iterable[Task]) -> list[list[Any]]:
    """Return the first tasks as JSON values, at least one task if there is any. Raise UserError if a task is too
    large."""
    page, size = list[list[Any]](), 0
    for task in tasks:
        size += (num := len(encode([task.id, task.data])))
        if num > MAX_TASK_BYTES:
            raise UserError(
                f"task `{task.id}` has {num / MB:.1f} MB of data, and a worker process takes at most "
                f"{MAX_TASK_BYTES / MB:.1f} MB. Keep large data in a file, and its path in the task."
            )
        if page and size > PAGE_BYTES:
            break
        page.append([task.id, task.data])
    return page


def _failure(error: BaseException) -> dict[str, Any]:
    """Return the reply that reports an error."""
    if isinstance(error, UserError):
        return {"refused": str(error)}
    if isinstance(error, RolloutError) and REASON.fullmatch(error.reason):
        return {"failed": [error.reason, error.detail]}
    return {"failed": ["environment_error", str(error) or "it was cancelled"]}


def _fields(turn: Turn) -> list[Any]:
    """Return the turn in the form that `RemoteEpisode` reads."""
    return [turn.done, turn.messages, turn.reward, turn.metrics]


def _seed(text: str) -> None:
    """Seed the global random generators of Python, and of numpy and torch if they are imported, from `text`."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)
