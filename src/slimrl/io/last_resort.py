"""Ends a process that Ctrl-C does not end in time, wherever it is.

Python raises KeyboardInterrupt between two of its own instructions. A backward pass of a large batch is a single
instruction, and may take minutes on cores that other programs use too.
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

    Its files are as after `kill -9`, and a run resumes from them. On Linux its children die with it.
    """
    heard, written = socket.socketpair()
    written.setblocking(False)
    # Python's handler in C writes each signal's number there at once, also within a long call.
    signal.set_wakeup_fd(written.detach(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(heard, last_words), name="last resort", daemon=True).start()


def end_quietly(work: Callable[[], int]) -> int:
    """Return the exit status of the work. After Ctrl-C, end the process with `INTERRUPTED` at once; a second Ctrl-C
    prints no traceback."""
    try:
        status = work()
    except KeyboardInterrupt:  # the second one, during the work's answer to the first
        status = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on it kills Python at once
    if status == INTERRUPTED:
        # Python's own end frees tensors one by one, which takes seconds while other programs use the cores.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the other side of a pipe has ended
                stream.flush()
        os._exit(status)
    return status


def end_by_itself() -> None:
    """Turn the watch off: this process must end its children first."""
    signal.set_wakeup_fd(-1)


def _watch(heard: socket.socket, last_words: str) -> None:
    while signal.SIGINT not in heard.recv(64):
        pass
    time.sleep(LIMIT_S)
    print(last_words, file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
