"""What a worker process does: it holds the taskset of one environment, plays its episodes and answers the run.

Episodes are played in an event loop, as in the run's own process. After each question the worker says when nothing is
left to do but to wait, so that the run, which waits for that, sees a step that computes as one that blocks it, and one
that awaits something as one that does not. Whatever else is asked is done between two turns of the loop.

The process dies with the run, is the first that the kernel ends if memory runs out, and takes in what its descendants
leave behind, so that they can be found. A fork of it never speaks to the run.
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
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from slimrl.environments.base import (
    Environment,
    FailureKinds,
    GroupRewarding,
    Offloading,
    Preparing,
    Scripted,
    SelfPlay,
    Taskset,
    new_episode,
)
from slimrl.environments.find import (
    call_user_code,
    describe_purpose,
    find_constructor,
    load_taskset,
    prepare_taskset,
    tasks_of,
)
from slimrl.environments.scripts import find_scripts, play_script
from slimrl.errors import RolloutError, UserError, describe
from slimrl.monitor.rollouts import rollout_from_json
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.rollout.loop import EpisodeLoop
from slimrl.rollout.worker.wire import REASON, WireError, receive_message, send_message
from slimrl.services.process_tree import processes
from slimrl.types import Task

# prctl(2)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MAX_TURNS = 100  # of the loop without a pause: an environment may poll
PART = 256  # tasks in one message
MAX_GENERATIONS = 100  # of descendants that are ended
BROKEN = 70  # the exit status after an error of the worker's own, EX_SOFTWARE


def main(descriptor: int) -> None:
    """Serve the run at the other end of a socket until it closes the connection."""
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
    """Go on in a child of this process. This one waits for its end, or that of the run, and ends all that it has
    started: a daemon without parent, session and variables is its child then, as it is their subreaper."""
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
        pid, status = os.wait()  # of daemons too
        if pid == worker:
            _end(os.waitstatus_to_exitcode(status))


def _end(status: int) -> NoReturn:
    """End all children, and with these their own, which become children of this process; then end as the worker did."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(MAX_GENERATIONS):
        children = [pid for pid, one in processes().items() if one.parent == os.getpid()]
        if not children:
            break
        for pid in children:
            with suppress(OSError):  # of another user
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
    """Calls `pause` whenever the loop has nothing to do but to wait. It holds nothing that a fork would share."""

    def __init__(self, pause: Callable[[bool], None]) -> None:
        super().__init__()
        self._pause = pause

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._pause(timeout is None or timeout > 0)
        return super().select(timeout)


class Worker:
    """The worker process of one environment."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._pid = sock, os.getpid()
        self._taskset: Taskset
        self._timeout_s = 0.0
        self._given: dict[str, list[Task]] = {}  # by split
        self._episodes: dict[str, Environment] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._outside: list[Mapping[str, Any]] = []  # questions to be answered while the loop does not run
        self._asked, self._told, self._num_turns = 0, 0, 0
        self._is_over = False
        self._loop = EpisodeLoop(_Selector(self._pause))
        self._loop.add_reader(sock, self._receive)
        asyncio.set_event_loop(self._loop)

    def run(self) -> None:
        """Answers questions until the connection ends."""
        while not self._is_over:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):  # of a task or callback that an environment has left
                traceback.print_exc()
            while self._outside:
                self._answer_outside(self._outside.pop(0))
        self._loop.remove_reader(self._sock)
        if left := list(self._calls.values()):
            for call in left:
                call.cancel()
            self._loop.run_until_complete(asyncio.wait(left))

    def _receive(self) -> None:
        try:
            message = receive_message(self._sock)
        except (OSError, WireError):  # the environment has closed it
            os._exit(BROKEN)
        if message is None:
            self._is_over = True
            self._loop.stop()
            return
        self._asked, self._num_turns = message["call"], 0
        if message["do"] == "cancel":
            if call := self._calls.get(message["of"]):
                call.cancel()
        elif work := self._work(message):
            self._calls[message["call"]] = self._loop.create_task(self._answer(message["call"], work))
        else:
            self._outside.append(message)
            self._loop.stop()

    def _pause(self, is_idle: bool) -> None:
        """Tells the run that there is nothing to do but to wait, or that an environment polls without a pause."""
        if os.getpid() != self._pid:
            os._exit(0)
        self._num_turns += 1
        if self._told < self._asked and (is_idle or self._num_turns > MAX_TURNS):
            self._told = self._asked
            self._send({"quiet": self._asked})

    def _send(self, message: dict[str, Any]) -> None:
        if os.getpid() != self._pid:  # a fork of an environment's, which went on as the worker
            os._exit(0)
        try:
            send_message(self._sock, message)
        except OSError:  # the environment has closed it, or the run has ended
            os._exit(BROKEN)

    # Calls into episodes, in the loop.

    def _work(self, message: Mapping[str, Any]) -> Callable[[], Coroutine[Any, Any, Any]] | None:
        """What is to be awaited for a question about an episode; None for any other question."""
        kinds = {
            "environment": self._make,
            "self_play": self._make_all,
            "start": self._start,
            "step": self._step,
            "close": self._close,
        }
        found = kinds.get(message["do"])
        return (lambda: found(message)) if found else None

    async def _answer(self, call: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            told: dict[str, Any] = {"answer": await run_with_timeout(work(), "environment", self._timeout_s)}
        except RolloutError as error:
            told = _failure(error)
        except UserError as error:
            told = {"refused": str(error)}
        except asyncio.CancelledError:  # as the run has asked
            told = {"failed": ["environment_error", "it was cancelled"]}
        except KeyboardInterrupt as error:  # the environment's own: here nobody can press Ctrl-C
            told = {"failed": ["environment_error", describe(error)]}
        del self._calls[call]
        self._tell(call, told)

    def _tell(self, call: int, told: dict[str, Any]) -> None:
        try:
            self._send({"call": call, **told})
        except WireError as error:
            self._send({"call": call, "failed": ["environment_error", str(error)]})
        except Exception:
            traceback.print_exc()
            os._exit(BROKEN)

    async def _make(self, message: Mapping[str, Any]) -> list[str]:
        return self._keep(message, [new_episode(self._taskset, self._task(message))])

    async def _make_all(self, message: Mapping[str, Any]) -> list[str]:
        assert isinstance(self._taskset, SelfPlay)
        return self._keep(message, list(self._taskset.self_play(copy.deepcopy(self._task(message)))))

    def _keep(self, message: Mapping[str, Any], episodes: Sequence[Environment]) -> list[str]:
        """The names by which the run may ask about new episodes."""
        named = {f"{message['call']}/{place}": episode for place, episode in enumerate(episodes)}
        self._episodes |= named
        return list(named)

    async def _start(self, message: Mapping[str, Any]) -> Any:
        return await start_episode(self._episodes[message["episode"]])

    async def _step(self, message: Mapping[str, Any]) -> Any:
        turn = await step_episode(self._episodes[message["episode"]], message["reply"])
        return [turn.done, turn.messages, turn.reward, turn.metrics]

    async def _close(self, message: Mapping[str, Any]) -> None:
        await close_episode(self._episodes.pop(message["episode"]))

    # Calls into the taskset, while the loop does not run: these may run a loop of their own.

    def _answer_outside(self, message: Mapping[str, Any]) -> None:
        kinds: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "find": self._find,
            "load": self._load,
            "prepare": lambda message: prepare_taskset(self._taskset),
            "tasks": self._tasks,
            "script": self._script,
            "failure_kind": self._failure_kind,
            "group_rewards": self._group_rewards,
            "offload": self._offload,
            "seed": lambda message: _seed(message["text"]),
        }
        try:
            told = {"answer": kinds[message["do"]](message)}
        except RolloutError as error:
            told = _failure(error)
        except UserError as error:
            told = {"refused": str(error)}
        self._tell(message["call"], told)

    def _find(self, message: Mapping[str, Any]) -> None:
        find_constructor(message["id"], message["args"])

    def _load(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._timeout_s = message["timeout_s"]
        taskset = self._taskset = load_taskset(message["id"], message["args"])
        name = f"environment `{message['id']}` failed"
        optional = {
            "scripts": lambda: list(find_scripts(taskset)) if isinstance(taskset, Scripted) else None,
            "roles": lambda: list(taskset.roles) if isinstance(taskset, SelfPlay) else None,
            "group_rewards": lambda: list(taskset.group_reward_names) if isinstance(taskset, GroupRewarding) else None,
            "failure_kind": lambda: isinstance(taskset, FailureKinds),
            "prepare": lambda: isinstance(taskset, Preparing),
            "offload": lambda: isinstance(taskset, Offloading),
        }
        told: dict[str, Any] = {key: call_user_code(name, look) for key, look in optional.items()}
        if told["scripts"] is None and (scripts := find_scripts(taskset)):
            told["scripts"] = list(scripts)
        return {"name": type(taskset).__name__, "purpose": describe_purpose(taskset), **told}

    def _tasks(self, message: Mapping[str, Any]) -> None:
        tasks = self._given[message["split"]] = tasks_of(self._taskset, message["split"])
        for first in range(0, len(tasks), PART):
            part = [[task.id, task.data] for task in tasks[first : first + PART]]
            try:
                self._send({"call": message["call"], "part": part})
            except WireError as error:
                raise UserError(f"the tasks {part[0][0]} to {part[-1][0]} are too large: {error}.") from error

    def _task(self, message: Mapping[str, Any]) -> Task:
        """The task that a question is about: the one that the taskset gave, if it did, whose data may have tuples."""
        task = Task(*message["task"])
        given = (one for tasks in self._given.values() for one in tasks if one.id == task.id)
        return next((one for one in given if _as_sent(one.data) == task.data), task)

    def _script(self, message: Mapping[str, Any]) -> Any:
        return play_script(self._taskset, message["name"], self._task(message), message["seed"])

    def _failure_kind(self, message: Mapping[str, Any]) -> str | None:
        assert isinstance(self._taskset, FailureKinds)
        taskset, rollout = self._taskset, rollout_from_json(message["rollout"]).rollout
        return call_user_code("failure_kind() failed", lambda: taskset.failure_kind(rollout))

    def _group_rewards(self, message: Mapping[str, Any]) -> dict[str, list[float]]:
        assert isinstance(self._taskset, GroupRewarding)
        taskset, task = self._taskset, copy.deepcopy(self._task(message))
        rollouts = [rollout_from_json(line).rollout for line in message["rollouts"]]
        given = call_user_code("group_rewards() failed", lambda: taskset.group_rewards(task, rollouts))
        try:
            return {str(name): [float(value) for value in values] for name, values in given.items()}
        except (TypeError, ValueError, AttributeError) as error:
            raise RolloutError("group_reward_error", f"group_rewards() gave what is no number: {error}") from error

    def _offload(self, message: Mapping[str, Any]) -> None:
        assert isinstance(self._taskset, Offloading)
        call_user_code("offload() failed", self._taskset.offload)


def _failure(error: RolloutError) -> dict[str, Any]:
    if REASON.fullmatch(error.reason):
        return {"failed": [error.reason, error.detail]}
    return {"failed": ["environment_error", str(error)]}


def _as_sent(data: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(data))


def _seed(text: str) -> None:
    """Sets the global random generators, of those packages that are loaded."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    random.seed(number)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(number)
