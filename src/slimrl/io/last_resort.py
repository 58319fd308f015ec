"""Kills a process that Ctrl-C does not stop in time.

Python raises KeyboardInterrupt only between two of its bytecode instructions. The backward pass of a large batch is a
single instruction, and may take minutes if other programs use the cores, too.
"""

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LIMIT_S = 8.0
INTERRUPTED = 130


def end_when_interrupted(last_words: str) -> None:
    """Print `last_words` and kill this process `LIMIT_S` seconds after the first Ctrl-C, if it still runs.

    The files of a run are then in the same state as after `kill -9`, so the run can be resumed. On Linux, the child
    processes die, too.
    """
    heard, written = socket.socketpair()
    written.setblocking(False)
    # Python's C code writes the number of each signal to this socket at once, even during a long call.
    signal.set_wakeup_fd(written.detach(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(heard, last_words), name="last resort", daemon=True).start()


def end_quietly(work: Callable[[], int]) -> int:
    """Run `work` and return its exit status. After Ctrl-C, exit the process at once with the status `INTERRUPTED`. A
    second Ctrl-C prints no traceback."""
    try:
        status = work()
    except KeyboardInterrupt:  # a second Ctrl-C, while `work` handles the first
        status = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on Ctrl-C kills Python at once
    if status == INTERRUPTED:
        # A normal exit frees tensors one by one, which takes seconds while other programs use the cores.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # if the reader of a pipe has exited
                stream.flush()
        os._exit(status)
    return status


def end_by_itself() -> None:
    """Turn off `end_when_interrupted`, for a process that must first end its child processes."""
    signal.set_wakeup_fd(-1)


def _watch(heard: socket.socket, last_words: str) -> None:
    while signal.SIGINT not in heard.recv(64):
        pass
    time.sleep(LIMIT_S)
    print(last_words, file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
