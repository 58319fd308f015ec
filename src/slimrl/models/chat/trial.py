"""Tries a chat template in a process of its own, before it is used here: it is a program, and comes with the model.

Jinja's sandbox keeps it from files and from Python, and bounds neither its time nor its memory.
"""

import os
import resource
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from slimrl.errors import UserError

MAX_S = 10.0
MAX_BYTES = 2**30
MAX_CHARS = 10**6
POLL_S = 0.002
TOO_MUCH_MEMORY, TOO_MUCH_TEXT, TOO_MUCH_TIME = 3, 4, 5
STATM = Path("/proc/self/statm")


def try_template(renders: Sequence[Callable[[], str]], name: str) -> None:
    """Raises UserError if one of `renders`, each of which writes a short conversation, takes too long, too much memory,
    or writes too much. Errors of the template itself are left for when it is used."""
    # A second time, since a process of one thread waits for ever for a lock that another thread held at the fork.
    code = _try(renders)
    if code == TOO_MUCH_TIME:
        code = _try(renders)
    match code:
        case 0:
            return
        case _ if code == TOO_MUCH_TIME:
            raise _refusal(name, f"more than {MAX_S:.0f} s")
        case _ if code == TOO_MUCH_TEXT:
            raise _refusal(name, f"more than {MAX_CHARS:,} characters")
        case _ if code in (TOO_MUCH_MEMORY, -signal.SIGKILL):
            raise _refusal(name, f"more than {MAX_BYTES >> 30} GiB of memory")
        case _:
            raise _refusal(name, f"its process along ({signal.Signals(-code).name})")


def _try(renders: Sequence[Callable[[], str]]) -> int:
    """What has become of a process that renders: 0 if nothing, one of the codes above, or the negative of a signal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads here; the other process needs none of them
        process = os.fork()
    if process == 0:
        _render_and_exit(renders)
    ends = time.monotonic() + MAX_S
    ended, status = os.waitpid(process, os.WNOHANG)
    while not ended and time.monotonic() < ends:
        time.sleep(POLL_S)
        ended, status = os.waitpid(process, os.WNOHANG)
    if not ended:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return TOO_MUCH_TIME
    return os.waitstatus_to_exitcode(status)


def _render_and_exit(renders: Sequence[Callable[[], str]]) -> None:
    code = TOO_MUCH_MEMORY
    try:
        if STATM.exists():
            used = int(STATM.read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        code = TOO_MUCH_TEXT if max(map(_num_chars, renders)) > MAX_CHARS else 0
    except MemoryError:
        code = TOO_MUCH_MEMORY
    except BaseException:
        code = 0
    finally:
        os._exit(code)  # without what other code wants to do at the end of the process


def _num_chars(render: Callable[[], str]) -> int:
    """The length of what is rendered; 0 if that cannot be, as of tools with a template that knows none."""
    try:
        return len(render())
    except MemoryError:
        raise
    except Exception:
        return 0


def _refusal(name: str, what: str) -> UserError:
    return UserError(
        f"The chat template of {name} takes {what} for a few short messages. It is damaged, or meant to do harm: copy "
        "or download the model's chat_template.jinja again."
    )
