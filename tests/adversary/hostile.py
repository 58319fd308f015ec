"""An environment whose tasks are attacks on the run that plays it: `Hostile`. The task's `fault` names the attack.

Each attack is a function in place of `start` or `step`, with a pattern of the drop's reason and of its detail. See
test_environments.py.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time

import numpy as np

from slimrl.errors import RolloutError
from slimrl.types import Task, Turn

OPENING = [{"role": "user", "content": "q"}]


class OwnError(BaseException):
    """No Exception."""


class Rude:
    """Raises whatever is asked of it."""

    def __float__(self):
        raise OwnError("float")

    def __repr__(self):
        raise GeneratorExit


class Mute(Exception):
    def __str__(self):
        raise OwnError("str")


class Text(str):
    def __str__(self):
        raise OwnError("str")


def raises(error):
    raise error


def done(reward=1.0, **more):
    return Turn(done=True, reward=reward, **more)


def says(text, **extras):
    return Turn(done=False, messages=[{"role": "user", "content": text, **extras}])


def opens(content="q", **extras):
    return [{"role": "user", "content": content, **extras}]


def after(call, *args):
    """Make a call, and be done."""
    call(*args)
    return done()


def cyclic():
    found = {}
    found["self"] = found
    return found


def nested(depth, width=1):
    found = ["x"]
    for _ in range(depth):
        found = [found] * width
    return found


def endless():
    while True:
        yield OPENING[0]


def cancel_all():
    for task in asyncio.all_tasks():
        task.cancel()


def leave_processes():
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(100)
            os._exit(0)


def loop_without_signals(seconds):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        time.sleep(seconds)


def send_garbage(data):
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            if "socket" in os.readlink(f"/proc/self/fd/{number}"):
                socket.socket(fileno=os.dup(number)).sendall(data)
    return done()


def answer_before():
    (serving,) = (one for one in gc.get_objects() if type(one).__name__ == "Worker")
    return send_garbage(frame(b'{"call":%d,"part":[1]}' % serving._asked))


def frame(body):
    return len(body).to_bytes(4, "big") + body


def flood():
    for _ in range(300):
        print("x" * 10_000)


def deep():
    return deep()


def hog():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
    return bytearray(1 << 33)


def break_interpreter():
    gc.disable()
    os.chdir("/")
    sys.stdout.close()
    sys.modules.clear()


ERROR, DIED, NONFINITE = "environment_error", "environment_died", "nonfinite_reward"
LARGE, HUNG = "larger than 8388608 bytes", "episode_timeout_s = 1 s, and its process was ended"
# The output of `start`.
STARTS = {
    "a text of 50 MB": (lambda: opens("x" * 50_000_000), ERROR, LARGE),
    "a text of 5 MB": (lambda: opens("x " * 2_500_000), "prompt_too_long", "5000000 characters"),
    "no message": (list, ERROR, "no messages"),
    "endless messages": (endless, f"{ERROR}|timeout", "larger than|longer than"),
    "a cyclic extra": (lambda: opens(more=cyclic()), ERROR, "Circular reference"),
    "a nested extra": (lambda: opens(more=nested(100)), ERROR, "nested more than 64 deep"),
    "a bomb of lists": (lambda: opens(more=nested(30, width=2)), ERROR, "nested|larger"),
}
# The effect of `step`, in any process.
ANYWHERE = {
    "gives 50 MB": (lambda: says("x" * 50_000_000), ERROR, LARGE),
    "gives 5 MB": (lambda: says("x" * 5_000_000), "", ""),
    "rewards 1e308": (lambda: done(1e308), NONFINITE, r"1e\+308, which is beyond float32"),
    "rewards numpy's 1e39": (lambda: done(np.float64(1e39)), NONFINITE, r"1e\+39"),
    "rewards numpy's -1e39": (lambda: done(np.float64(-1e39)), NONFINITE, r"-1e\+39"),
    "rewards a huge integer": (lambda: done(10**400), ERROR, "OverflowError"),
    "says nan": (lambda: says("x", more=float("nan")), ERROR, "not JSON: .*nan"),
    "says a set": (lambda: says("x", more={1}), ERROR, "not JSON: it holds a set"),
    "says bytes": (lambda: says("x", more=b"1"), ERROR, "not JSON: it holds a bytes"),
    "says a huge integer": (lambda: says("x", more=10**5000), ERROR, "not JSON: .*digits"),
    "says with tuples as keys": (lambda: says("x", more={(1, 2): 2}), ERROR, "not JSON: keys must be"),
    "raises its own BaseException": (lambda: raises(OwnError()), ERROR, r"OwnError: .*hostile\.py"),
    "raises GeneratorExit": (lambda: raises(GeneratorExit()), ERROR, r"GeneratorExit.*hostile\.py"),
    "raises CancelledError": (lambda: raises(asyncio.CancelledError()), ERROR, "cancelled"),
    "raises StopIteration": (lambda: raises(StopIteration()), ERROR, "StopIteration"),
    "raises a group": (lambda: raises(BaseExceptionGroup("all", [OwnError(), Mute()])), ERROR, "BaseExceptionGroup"),
    "rewards what raises": (lambda: done(Rude()), ERROR, "OwnError: float"),
    "gives what has no repr": (Rude, ERROR, "must return a Turn, not Rude"),
    "says what has no repr": (lambda: Turn(done=False, messages=[Rude()]), ERROR, "GeneratorExit"),
    "raises without a text": (lambda: raises(Mute()), ERROR, "Mute: .its text cannot be made: OwnError"),
    "raises 50 MB": (
        lambda: raises(ValueError("x" * 50_000_000)),
        ERROR,
        r"^ValueError: x{900}.*more characters\) \(host",
    ),
    "raises escapes": (
        lambda: raises(ValueError("a\x1b[2J\x9b\r\u202eb")),
        ERROR,
        r"a\\x1b\[2J\\x9b\\r\\u202eb \(host",
    ),
    "closes the loop": (lambda: asyncio.get_running_loop().close(), ERROR, "close a running event loop"),
    "recurses": (deep, ERROR, "RecursionError"),
    "exits": (lambda: sys.exit(0), ERROR, "SystemExit: 0"),
    "has a reason of its own": (lambda: raises(RolloutError("tool-timeout", "too late")), "tool-timeout", "too late"),
    "says a number of numpy's": (lambda: says("x", more=np.float32(1)), "", ""),
    "says a text of its own": (lambda: says(Text("x"), more=Text("y")), "", ""),
    "is good": (done, "", ""),
}
# The effect of `step` that only a worker process survives. Each of the first ones has a second of its own.
FAST_IN_WORKER = {
    "raises KeyboardInterrupt": (lambda: raises(KeyboardInterrupt()), ERROR, "KeyboardInterrupt"),
    "stops the loop": (lambda: asyncio.get_running_loop().stop(), ERROR, "must return a Turn, not NoneType"),
    "cancels all tasks": (lambda: after(cancel_all), "", ""),
    "has no word as its reason": (lambda: raises(RolloutError("a b/c", "too late")), ERROR, "^a b/c: too late"),
    "answers before it is done": (answer_before, DIED, "it sent what is no answer"),
    "exits at once": (lambda: os._exit(0), DIED, "ended its process with exit status 0"),
    "sleeps through signals": (lambda: loop_without_signals(100), "timeout", HUNG),
    "crashes": (lambda: ctypes.string_at(0), DIED, "ended by SIGSEGV"),
    "forks": (lambda: after(os.fork), "", ""),  # and both go on
    "leaves a thread": (lambda: after(threading.Thread(target=time.sleep, args=(100,), daemon=True).start), "", ""),
    "exits later": (lambda: after(asyncio.get_running_loop().call_soon, sys.exit, 0), "", ""),
}
SLOW_IN_WORKER = {
    "counts in C": (lambda: sum(range(10**12)), "timeout", HUNG),
    "aborts": (os.abort, DIED, "SIGABRT"),
    "sleeps in C": (lambda: ctypes.CDLL(None).sleep(1000), "timeout", "longer than"),
    "forks in C": (lambda: after(ctypes.CDLL(None).fork), "", ""),
    "is killed": (
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        DIED,
        "SIGKILL, which the kernel does when memory runs out",
    ),
    "leaves processes": (lambda: after(leave_processes), "", ""),
    "floods the output": (lambda: after(flood), "", ""),
    "runs out of memory": (hog, ERROR, "MemoryError"),
    "closes the standard files": (lambda: after(os.closerange, 0, 3), "", ""),
    "has a small stack": (lambda: after(sys.setrecursionlimit, 30), f"{DIED}|{ERROR}|", ""),
    "closes all files": (lambda: after(os.closerange, 3, 64), DIED, "exit status 70|closed its connection"),
    "breaks the interpreter": (lambda: after(break_interpreter), f"{DIED}|{ERROR}|", ""),
    "sends garbage": (lambda: send_garbage(b"\xff" * 100), DIED, "it announced a message of 4294967295 bytes"),
    "sends a forged answer": (
        lambda: send_garbage(frame(b'{"call":9999,"answer":1}')),
        DIED,
        "it sent what is no answer",
    ),
    "sends a deep message": (lambda: send_garbage(frame(b"[" * 100_000)), DIED, "it sent what is no JSON"),
}
STEPS = {**ANYWHERE, **FAST_IN_WORKER, **SLOW_IN_WORKER}


class Hostile:
    def tasks(self, split):
        return [Task(f"{split}/{fault}", {"fault": fault}) for fault in (*STARTS, *STEPS)]

    def environment(self, task):
        return Attack(task.data["fault"])


class Attack:
    def __init__(self, fault):
        self.fault = fault
        self.turns = 0

    async def start(self):
        return STARTS[self.fault][0]() if self.fault in STARTS else OPENING

    async def step(self, reply):
        self.turns += 1
        return STEPS[self.fault][0]() if self.turns == 1 and self.fault in STEPS else done()
