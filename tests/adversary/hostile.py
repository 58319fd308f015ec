"""An environment whose tasks are attacks on the run that plays it: `Hostile`. The task's `fault` says which.

`ATTACKS` maps each to what it gives from `start` or does in `step`. See test_environments.py.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import subprocess
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


def opens(**extras):
    return [{"role": "user", "content": "q", **extras}]


def cyclic():
    found = {}
    found["self"] = found
    return found


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


def bomb():
    found = ["x"]
    for _ in range(30):
        found = [found, found]
    return found


def endless():
    while True:
        yield OPENING[0]


def cancel_all():
    for task in asyncio.all_tasks():
        task.cancel()
    return done()


def fork():
    os.fork()  # and both go on
    return done()


def fork_in_c():
    ctypes.CDLL(None).fork()
    return done()


def leave_processes():
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(100)
            os._exit(0)
    return done()


def loop_without_signals(seconds):
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    while True:
        time.sleep(seconds)


def sockets():
    return [number for number in range(3, 64) if is_socket(number)]


def is_socket(number):
    try:
        return "socket" in os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return False


def send_garbage(data):
    for number in sockets():
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(number)).sendall(data)
    return done()


def answer_before():
    (serving,) = (one for one in gc.get_objects() if type(one).__name__ == "Worker")
    return send_garbage(frame(b'{"call":%d,"part":[1]}' % serving._asked))


def leave_session():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
    os._exit(0)


def frame(body):
    return len(body).to_bytes(4, "big") + body


def close_files(first, last):
    os.closerange(first, last)
    return done()


def exit_later():
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    return done()


def leave_thread():
    threading.Thread(target=lambda: time.sleep(100), daemon=True).start()
    return done()


def flood():
    for _ in range(300):
        print("x" * 10_000)
    return done()


def deep():
    return deep()


def small_stack():
    sys.setrecursionlimit(30)
    return done()


def hog():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))
    return bytearray(1 << 33)


def deaf():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        pass


def break_interpreter():
    gc.disable()
    os.chdir("/")
    sys.stdout.close()
    sys.modules.clear()
    return done()


# What `start` gives.
STARTS = {
    "a text of 50 MB": lambda: [{"role": "user", "content": "x" * 50_000_000}],
    "a text of 5 MB": lambda: [{"role": "user", "content": "x " * 2_500_000}],
    "no message": list,
    "endless messages": endless,
    "a cyclic extra": lambda: opens(more=cyclic()),
    "a nested extra": lambda: opens(more=nested(100)),
    "a bomb of lists": lambda: opens(more=bomb()),
    "an unknown role": lambda: [{"role": "refused", "content": "q"}],
}
# What `step` does.
STEPS = {
    "gives 50 MB": lambda: says("x" * 50_000_000),
    "gives 5 MB": lambda: says("x " * 2_500_000),
    "rewards 1e308": lambda: done(1e308),
    "rewards -1e39": lambda: done(-1e39),
    "rewards numpy's 1e39": lambda: done(np.float64(1e39)),
    "rewards a huge integer": lambda: done(10**400),
    "says nan": lambda: says("x", more=float("nan")),
    "says a set": lambda: says("x", more={1}),
    "says bytes": lambda: says("x", more=b"1"),
    "says a huge integer": lambda: says("x", more=10**5000),
    "says with numbers as keys": lambda: says("x", more={1: 2}),
    "raises its own BaseException": lambda: raises(OwnError()),
    "raises GeneratorExit": lambda: raises(GeneratorExit()),
    "raises CancelledError": lambda: raises(asyncio.CancelledError()),
    "raises StopIteration": lambda: raises(StopIteration()),
    "raises a group": lambda: raises(BaseExceptionGroup("many", [OwnError(), GeneratorExit()])),
    "rewards what raises": lambda: done(Rude()),
    "gives what has no repr": Rude,
    "says what has no repr": lambda: Turn(done=False, messages=[Rude()]),
    "raises without a text": lambda: raises(Mute()),
    "raises 50 MB": lambda: raises(ValueError("x" * 50_000_000)),
    "raises escapes": lambda: raises(ValueError("a\x1b[2J\x9b\r\u202eb")),
    "stops the loop": lambda: asyncio.get_running_loop().stop(),
    "closes the loop": lambda: asyncio.get_running_loop().close(),
    "cancels all tasks": cancel_all,
    "recurses": deep,
    "exits": lambda: sys.exit(0),
    "raises KeyboardInterrupt": lambda: raises(KeyboardInterrupt()),
    "has a reason of its own": lambda: raises(RolloutError("tool-timeout", "nobody answered")),
    "has no word as its reason": lambda: raises(RolloutError("a b/c", "nobody answered")),
    # What is done to the process itself.
    "exits at once": lambda: os._exit(0),
    "exits at once with 3": lambda: os._exit(3),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashes": lambda: ctypes.string_at(0),
    "aborts": os.abort,
    "counts in C": lambda: sum(range(10**12)),
    "sleeps in C": lambda: ctypes.CDLL(None).sleep(1000),
    "blocks signals": lambda: loop_without_signals(0),
    "sleeps through signals": lambda: loop_without_signals(100),
    "ignores the alarm": deaf,
    "forks": fork,
    "forks in C": fork_in_c,
    "leaves processes": leave_processes,
    "leaves a thread": leave_thread,
    "floods the output": flood,
    "runs out of memory": hog,
    "closes the standard files": lambda: close_files(0, 3),
    "closes all files": lambda: close_files(3, 64),
    "exits later": exit_later,
    "leaves a session and exits": leave_session,
    "answers before it is done": answer_before,
    "has a small stack": small_stack,
    "breaks the interpreter": break_interpreter,
    "sends garbage": lambda: send_garbage(b"\xff" * 100),
    "sends a forged answer": lambda: send_garbage(frame(b'{"call":99999,"answer":1}')),
    "sends a deep message": lambda: send_garbage(frame(b"[" * 100_000)),
    # What is no attack.
    "says a number of numpy's": lambda: says("x", more=np.float32(1)),
    "says a text of its own": lambda: says(Text("x"), more=Text("y")),
    "is good": done,
}
BROKEN = "breaks the interpreter"


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
        return STARTS[self.fault]() if self.fault in STARTS else OPENING

    async def step(self, reply):
        self.turns += 1
        return STEPS.get(self.fault, done)() if self.turns == 1 else done()
