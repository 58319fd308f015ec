"""Defines the interface of a sandbox, which runs code and returns its output. This module does not isolate code."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Protocol

from slimrl.errors import UserError
from slimrl.tools.base import Tool

# Functions of the host that the code can call by name. A result must be serialisable as JSON. If a function raises an
# exception, the code receives the exception's text. The functions are called in worker threads, possibly at the same
# time.
Tools = Mapping[str, Tool]
CALL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources that one execution may use."""

    cpu_s: int = 10
    """CPU time of each of the execution's processes."""
    wall_s: float = 20.0
    """Wall-clock time, including tool calls but not the wait for a free slot."""
    memory_mb: int = 512
    """Address space of each process, and memory of all processes together. The latter is polled, and consists of the
    processes' own pages, page tables, pipes and sockets."""
    num_processes: int = 16
    """Processes and threads that run at the same time."""
    file_mb: int = 16
    """Size of one file."""
    scratch_mb: int = 64
    """Size of all files in the scratch directory."""
    num_files: int = 1000
    """Files and directories in the scratch directory."""
    num_open_files: int = 64
    """File descriptors of each process."""
    output_chars: int = 20_000
    """Maximum length of standard output, of standard error and of the traceback, each. Longer texts are cut."""
    num_calls: int = 100
    """Tool calls of one execution."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(f"the limit {name} = {value} is none; set a number above 0.")


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call by the code. If the call has only one argument, a text, `argument` is this text. Otherwise it is
    JSON: a list of the positional arguments, and an object of the keyword arguments. `error` is empty unless the tool
    failed. `argument` and `error` are cut to `CALL_CHARS` characters."""

    tool: str
    argument: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of running code.

    >>> Execution(stdout="4\\n", stderr="", error="", duration_s=0.01, truncated=False).error
    ''
    """

    stdout: str
    stderr: str
    error: str
    """A traceback, or the limit that was exceeded; empty if the code ran to completion."""
    duration_s: float
    truncated: bool
    """True if some of the output was left out."""
    calls: tuple[Call, ...] = ()
    """The answered tool calls in order. A call that was interrupted by the end of the execution is missing."""


class Sandbox(Protocol):
    """A sandbox runs code for several sessions.

    Executions with the same `session_id` share the files in their working directory; an execution with `""` shares no
    files. An execution takes at most `timeout_s` seconds, and never more than the sandbox's own limit.
    """

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution:
        """Run code and return the result. Raises UserError if the sandbox itself does not work."""

    async def end_session(self, session_id: str) -> None:
        """Release the resources of a session."""
