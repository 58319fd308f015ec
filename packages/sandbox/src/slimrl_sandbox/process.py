"""Runs one program: starts a process in the sandbox, watches it, and kills it with all its children.

The calling thread watches the execution, and a second thread answers its tool calls. Neither thread waits for the event
loop, so the limits are enforced even if the event loop is busy for seconds.
"""

import os
import select
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, perf_counter

from slimrl.errors import UserError
from slimrl_sandbox.base import Execution, Limits, Tools
from slimrl_sandbox.calls import BrokenChannel, Channel, writable
from slimrl_sandbox.isolation import SCRATCH, bare_command, call_filter, isolated_command, why_not
from slimrl_sandbox.usage import find_excess, first_child, rlimits

DESCRIPTORS = 12  # open descriptors that one execution needs on the host
MAX_OUTPUT_BYTES = 2 * 2**20  # of each pipe; more output stops the execution
_START_S = 30.0  # wait this long for a process to start; usually the start takes milliseconds
_END_S = 10.0
_LAST_WORDS_S = 0.5  # wait this long for messages that the process sent before it exited
_INTERVAL_S = 0.05  # between two checks of the resources that the process uses
_PART = 65536


@dataclass(frozen=True, slots=True)
class Program:
    """The code to run, with its tools, its time-out and the packed files of its session. `pack_bytes` limits the files
    that the program leaves; with 0 no files are returned."""

    code: str
    tools: Tools
    timeout_s: float
    files: bytes = b""
    pack_bytes: int = 0


def execute(
    isolated: bool, runner: Path, limits: Limits, program: Program, stop: threading.Event
) -> tuple[Execution, bytes | None]:
    """Run a program in a new process, with isolation if `isolated`. If `stop` is set, the process is killed. Return the
    result, and the packed files that the program left. The files are None if the program did not run to completion.

    Errors of the program raise no exception. Raises UserError if no process can be started.
    """
    try:
        with _start_program(isolated, runner, limits, program.tools) as process:
            return process.run(program, stop)
    except (OSError, RuntimeError) as error:  # RuntimeError: the system allows no more threads
        raise UserError(
            f"no process can be started for the sandbox: {error}. Run fewer at once (set num_at_once), or "
            "allow more open files and processes (`ulimit -n`, `ulimit -u`)."
        ) from error


@contextmanager
def _start_program(isolated: bool, runner: Path, limits: Limits, tools: Tools) -> "Iterator[_Process]":
    """Context manager: start a process that waits for its program, and kill the process at the end. Raises OSError or
    UserError if it cannot be started."""
    with ExitStack() as opened:
        folder = "/" if isolated else opened.enter_context(tempfile.TemporaryDirectory(prefix="slimrl-"))
        ours, theirs = socket.socketpair()
        opened.enter_context(ours)
        # After the `with`, only the new process holds the other end of the socket, so its exit closes the channel.
        with theirs, open(os.memfd_create("filter"), "r+b") as filter_:
            filter_.write(call_filter())
            filter_.seek(0)
            channel = theirs.fileno()
            command = bare_command(runner, channel)
            if isolated:
                command = isolated_command(runner, channel, filter_.fileno(), limits.scratch_mb)
            child = opened.enter_context(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(channel, filter_.fileno()),
                    cwd=folder,
                    env={},
                    start_new_session=True,
                )
            )
        process = _Process(child, limits, Channel(ours, tools))
        opened.callback(process.end)
        process.await_ready(ours, isolated)
        try:
            yield process
        finally:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)  # the second thread may still wait for the other end


class _Process:
    """A process for one program, with its output, its limits and its channel. The caller must call `end`, even after an
    error."""

    def __init__(self, child: subprocess.Popen[bytes], limits: Limits, channel: Channel) -> None:
        self._child = child
        self._limits = limits
        self._channel = channel
        self._outputs = bytearray(), bytearray()
        self._first = child.pid  # the root of the process tree to watch; with bubblewrap, the first process inside
        # Descriptors of processes, unlike process ids, are never reused: a signal cannot hit another process.
        self._outer = self._inner = self._scratch = -1
        self._lock = threading.Lock()  # held while descriptors are used that `end` closes
        self._outcome: tuple[str, bytes | None] | None = None  # the program's error and packed files, once it is done

    def await_ready(self, channel: socket.socket, isolated: bool) -> None:
        """Wait until the process is ready for its program. Raises UserError or OSError if it does not start."""
        self._outer = os.pidfd_open(self._child.pid)
        channel.settimeout(_START_S)
        try:
            is_ready = bool(channel.recv(1))
        except TimeoutError:
            raise UserError(
                f"a process for the sandbox was not ready within {_START_S:g} s. Run fewer at once: set num_at_once."
            ) from None
        if not is_ready:
            self._kill()
            raise why_not(self._child.communicate()[1].decode(errors="replace"))
        channel.settimeout(None)
        if isolated:
            self._first = first_child(self._child.pid)
            self._inner = os.pidfd_open(self._first)
            self._scratch = os.open(f"/proc/{self._first}/root{SCRATCH}", os.O_RDONLY | os.O_DIRECTORY)

    def run(self, program: Program, stop: threading.Event) -> tuple[Execution, bytes | None]:
        """Run a program and kill the process, as `execute` does."""
        started = perf_counter()
        # A daemon: a tool that never returns must not keep this process from exiting.
        serving = threading.Thread(target=self._serve, args=(program,), name="slimrl-sandbox-calls", daemon=True)
        serving.start()
        with selectors.DefaultSelector() as selector:
            for pipe, output in zip((self._child.stdout, self._child.stderr), self._outputs, strict=True):
                assert pipe
                selector.register(pipe, selectors.EVENT_READ, output)
            excess = self._watch(selector, min(program.timeout_s, self._limits.wall_s), stop)
            self._kill()
            serving.join(0 if excess else _LAST_WORDS_S)  # a tool may not have returned
            # Without isolation, a process that left the group may keep the pipes open.
            ends_at = monotonic() + _END_S
            while selector.get_map() and monotonic() < ends_at:
                _read(selector, _INTERVAL_S)
        error, files = self._outcome or (excess or self._reason(), None)
        return self._execution(error, perf_counter() - started), files

    def _execution(self, error: str, duration_s: float) -> Execution:
        """Return the result of a program that has ended, cut to the limit on its output."""
        out, err = (output.decode("utf-8", "replace") for output in self._outputs)
        num_chars = self._limits.output_chars
        return Execution(
            stdout=out[:num_chars],
            stderr=err[:num_chars],
            error=error[:num_chars],
            duration_s=duration_s,
            truncated=max(len(out), len(err)) > num_chars,
            calls=tuple(self._channel.calls),
        )

    def end(self) -> None:
        """Kill all remaining processes, wait for their end, and close the descriptors."""
        self._kill()
        for process in (self._inner, self._outer):
            if process >= 0:
                ended = select.poll()  # `select.select` refuses descriptors above 1,023
                ended.register(process, select.POLLIN)
                ended.poll(_END_S * 1000)
        self._child.kill()
        self._child.wait()
        with self._lock:
            for descriptor in (self._outer, self._inner, self._scratch):
                if descriptor >= 0:
                    os.close(descriptor)
            self._inner = -1

    def _serve(self, program: Program) -> None:
        """Answer the program's calls until it is done, breaks the protocol or closes the channel. In the first two
        cases, store the outcome and kill the process."""
        start = {
            "code": writable(program.code),
            "limits": rlimits(self._limits),
            "files": program.files,
            "pack": (program.pack_bytes, self._limits.num_files),
        }
        try:
            self._outcome = self._channel.serve(start, self._limits.num_calls, program.pack_bytes)
        except BrokenChannel as error:
            self._outcome = str(error), None
        except EOFError:  # a program may close the channel and keep running
            return
        self._kill()

    def _watch(self, selector: selectors.BaseSelector, timeout_s: float, stop: threading.Event) -> str:
        """Read the output until the process exits or exceeds a limit. Return the error for the limit; empty if the
        process exited."""
        now = monotonic()
        ends_at, look_at = now + timeout_s, now
        selector.register(self._outer, selectors.EVENT_READ)
        try:
            while not _read(selector, max(0.0, min(look_at, ends_at) - monotonic())):
                now = monotonic()
                if stop.is_set() or now >= ends_at:
                    return f"the code took longer than timeout_s = {timeout_s:g} s, and was ended"
                if any(len(output) > MAX_OUTPUT_BYTES for output in self._outputs):
                    return f"the code printed more than {MAX_OUTPUT_BYTES // 2**20} MiB, and was ended"
                if now >= look_at:
                    look_at = now + _INTERVAL_S
                    if excess := find_excess(self._limits, self._first, self._scratch):
                        return excess
            return ""
        finally:
            selector.unregister(self._outer)

    def _reason(self) -> str:
        status = self._child.wait()
        number = -status if status < 0 else status - 128  # bubblewrap reports a signal as status 128 + number
        if number == signal.SIGXCPU:
            return f"the code used more than cpu_s = {self._limits.cpu_s} s of CPU time, and was ended"
        if number in set(signal.Signals):
            return f"the code was ended by {signal.Signals(number).name}"
        return f"the code ended its process itself, with status {status}"

    def _kill(self) -> None:
        """Kill the first process of the PID namespace; the kernel then kills all other processes of the namespace. If
        the first process is not known yet, kill the process group. It is not enough to kill bubblewrap: a child could
        wait for bubblewrap for ever."""
        with self._lock, suppress(ProcessLookupError):
            if self._inner >= 0:
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            elif self._child.poll() is None:
                os.killpg(self._child.pid, signal.SIGKILL)


def _read(selector: selectors.BaseSelector, timeout_s: float) -> bool:
    """Wait up to `timeout_s` seconds for output of the process, and read it. Return True if the process has exited."""
    has_exited = False
    for key, _ in selector.select(timeout_s):
        if key.data is None:
            has_exited = True
        elif part := os.read(key.fd, _PART):
            if len(key.data) <= MAX_OUTPUT_BYTES:  # a process that outlives the program may print without an end
                key.data.extend(part)
        else:
            selector.unregister(key.fileobj)
    return has_exited
