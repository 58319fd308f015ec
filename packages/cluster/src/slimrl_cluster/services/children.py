"""Starts and watches child processes. The children always stop when their parent stops.

Each child has its own session, so Ctrl-C reaches only the parent. The parent then stops all children in order. A
child's output goes to a file. On Linux, the kernel stops a child whose parent has died.
"""

import ctypes
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from slimrl.io.files import explain_write_errors
from slimrl.io.process_tree import end, find_marked, kill, start_time
from slimrl_cluster.services.programs import ADDRESS, End, Log, Needs, describe_status
from slimrl_cluster.transport.roster import Facts

LOOPBACK = "127.0.0.1"
PATIENCE_S = 7.0  # seconds for children to stop by themselves, before SIGKILL
PR_SET_PDEATHSIG = 1
MARK = "CHILD_OF_SLIMRL"  # the environment variable that marks the descendants of one process


class Child:
    """One child process. Successive children with the same name append to the same log."""

    def __init__(self, name: str, command: Sequence[str], log: Log, environment: Mapping[str, str]) -> None:
        self.name, self.log = name, log.path
        self.new_lines = log.new_lines
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(environment),
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        self.pid = self._process.pid
        self.process = str(self.pid)

    @property
    def end(self) -> End | None:
        """The child's exit status, with a description that names its log; None while the child runs."""
        if (status := self._process.poll()) is None:
            return None
        last = f"its last lines are above, and in {self.log}"
        return End(status, f"the {self.name} (process {self.pid}) {describe_status(status)}; {last}")

    def stop(self) -> None:
        """Stop the child and its descendants with SIGTERM, and after `PATIENCE_S` with SIGKILL."""
        if not self.end:
            end({self.pid: start_time(self.pid)}, PATIENCE_S)
        self.wait()

    def wait(self) -> None:
        """Wait until the process has ended, so that no zombie remains."""
        self._process.wait()


class Children:
    """Context manager for the children of this process. On exit it stops all running children."""

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None) -> None:
        self._logs = logs
        # A mark identifies descendants, even if their parent has died.
        self._mark = uuid.uuid4().hex
        self._environment = {**(environment or {}), MARK: self._mark}
        self._all: list[Child] = []

    def start(
        self,
        name: str,
        command: Sequence[str],
        needs: Needs | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a program as the child `name`, whose output goes to `NAME.log`. A child has this machine's resources;
        `needs` is ignored. Raises UserError if the log cannot be written."""
        with explain_write_errors(self._logs):
            self._logs.mkdir(parents=True, exist_ok=True)
            words = [LOOPBACK if word == ADDRESS else word for word in command]
            child = Child(name, words, Log(self._logs, name), {**self._environment, **(environment or {})})
        self._all.append(child)
        return child

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs | None = None) -> Child:
        """Start `num` processes of a Python module as one child, with torchrun. `command` starts with `python -m`."""
        python, *module = command
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num)]
        return self.start(name, [python, *torchrun, *module] if num > 1 else command)

    def members(self) -> Mapping[str, Facts]:
        """Return an empty mapping, because children announce themselves with files."""
        return {}

    def close(self) -> None:
        """Stop all running children, and all processes that they have started."""
        known = {child.pid: start_time(child.pid) for child in self._all if not child.end}
        known |= find_marked(MARK, self._mark)
        try:
            end(known, PATIENCE_S)  # a second Ctrl-C kills them at once
        except KeyboardInterrupt:
            kill(known, PATIENCE_S)
        for child in self._all:
            child.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
