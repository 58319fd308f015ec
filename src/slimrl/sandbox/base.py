"""What a sandbox is: code in, what it printed out. Knows nothing of how the code is kept from doing harm."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from slimrl.errors import UserError

# Functions of the host in scope of the code. A result is anything that JSON can spell; an exception's text reaches the
# code. They are called in other threads, several at once.
Tools = Mapping[str, Callable[[str], Any]]
CALL_CHARS = 1000


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use."""

    cpu_s: int = 10
    """CPU time of each of its processes."""
    wall_s: float = 20.0
    """Time on the clock, that of its calls of tools included; waiting for its turn is not."""
    memory_mb: int = 512
    """Address space of each process, and memory of all of them together."""
    num_processes: int = 16
    """Processes and threads at once."""
    file_mb: int = 16
    """Size of one file."""
    scratch_mb: int = 64
    """Size of all files in the scratch directory."""
    num_files: int = 1000
    """Files and directories in the scratch directory."""
    num_open_files: int = 64
    """File descriptors of each process."""
    output_chars: int = 20_000
    """Kept of each of standard output, standard error and the traceback."""
    num_calls: int = 100
    """Calls of tools."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (0 < value < math.inf):
                raise UserError(f"the limit {field.name} = {value} is none; set a number above 0.")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool by the code. `error` is what the tool failed with, empty if it did not. Both texts are cut at
    `CALL_CHARS` characters."""

    tool: str
    argument: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of running code.

    >>> Execution(stdout="4\\n", stderr="", error="", duration_s=0.01, truncated=False).error
    ''
    """

    stdout: str
    stderr: str
    error: str
    """A traceback, or the limit that ended the execution; empty if the code ran to its end."""
    duration_s: float
    truncated: bool
    """Whether output was left out."""
    calls: tuple[Call, ...] = ()
    """Those of tools, in order; one that was not answered any more is missing."""


class Sandbox(Protocol):
    """Executions of one session share the files they leave in their working directory; `""` is a session of its own
    each time. None takes longer than `timeout_s`, nor than the sandbox's own limit."""

    async def run(self, code: str, session_id: str = "", timeout_s: float = math.inf) -> Execution: ...
