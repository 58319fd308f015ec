"""The module starts a process in the sandbox, sends it a program, watches it, and kills it with all its children.

`Process()` only starts it. The process then gets ready and waits for its program, so it can be started ahead.
"""

import asyncio
import json
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from slimrl.errors import UserError
from slimrl_sandbox.base import Execution, JsonTool, Limits, Tools
from slimrl_sandbox.cgroup import Group
from slimrl_sandbox.channel import BrokenChannel, Channel, writable
from slimrl_sandbox.isolation import Bare, call_filter, why_not
from slimrl_sandbox.output import MAX_BYTES, Output
from slimrl_sandbox.watch import Watch, Watched, out_of_memory

DESCRIPTORS = 12  # that one process needs on the host while it starts, runs, and has its files copied
_START_S = 30.0  # for an overloaded machine; usually it takes milliseconds
_END_S = 10.0
_LAST_WORDS_S = 0.5  # wait this long for messages that the process sent before it exited


@dataclass(frozen=True, slots=True)
class Program:
    """The code to run, with its tools and its time-out."""

    code: str
    tools: Tools
    timeout_s: float


class Process:
    """A process for one program. Call `begin`, `run` and `end` in this order, and `end` in any case."""

    def __init__(self, isolation: Bare, runner: Path, limits: Limits, groups: Path | None) -> None:
        """Start the process, with `groups` in a new cgroup below it. Raises UserError if it cannot be started."""
        self._isolation = isolation
        self._limits = limits
        self._watch: Watch | None = None
        self._scratch = self._inner = -1
        try:
            with ExitStack() as opened:
                self._start(runner, groups, opened)
                opened.pop_all()  # from here on, `end` closes these
        except OSError as error:
            raise UserError(
                f"no process can be started for the sandbox: {error.strerror}. Run fewer at once (set num_at_once), or "
                "allow more open files and processes (`ulimit -n`, `ulimit -u`)."
            ) from error
        self._first = self._process.pid  # the root of the process tree to watch; with bubblewrap, the one inside it

    def _start(self, runner: Path, groups: Path | None, opened: ExitStack) -> None:
        """Start the process and register everything to close in `opened`. Raises OSError."""
        # The group's limit includes files in memory, which also have their own limit.
        num_bytes = (self._limits.memory_mb + self._limits.scratch_mb) * 2**20
        self._group = Group(groups, num_bytes) if groups else None
        if self._group:
            opened.callback(self._group.remove)
        isolated = self._isolation.isolated
        self._directory = None if isolated else tempfile.TemporaryDirectory(prefix="slimrl-scratch-")
        if self._directory:
            opened.enter_context(self._directory)
        ours, theirs = socket.socketpair()
        self._channel = Channel(opened.enter_context(ours))
        # After the `with`, only the process inside holds the other end of the socket, so its death closes the channel.
        with theirs, ExitStack() as passed:
            self._info, info = os.pipe()
            opened.callback(os.close, self._info)
            passed.callback(os.close, info)
            filter_ = passed.enter_context(open(os.memfd_create("filter"), "r+b"))
            filter_.write(call_filter())
            filter_.seek(0)
            command = self._isolation.command(runner, theirs.fileno(), info, filter_.fileno())
            self._process = opened.enter_context(
                subprocess.Popen(
                    self._group.command(command) if self._group else command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(theirs.fileno(), info, filter_.fileno()),
                    cwd=self._directory.name if self._directory else "/",
                    env={},
                    start_new_session=True,
                )
            )
        opened.callback(self._kill)
        assert self._process.stdout and self._process.stderr
        self._stdout = Output(self._process.stdout.fileno(), self._limits.output_chars)
        self._stderr = Output(self._process.stderr.fileno(), self._limits.output_chars)
        # Descriptors of processes, unlike process ids, are never reused: a signal cannot hit another process.
        self._outer = os.pidfd_open(self._process.pid)

    async def begin(self) -> int:
        """Wait until the process is ready and return a descriptor of its working directory. Raises UserError if it does
        not start."""
        try:
            async with asyncio.timeout(_START_S):
                self._scratch = await self._channel.scratch()
            if self._process.poll() is not None:
                raise EOFError
            if self._isolation.isolated:
                self._first = json.loads(os.read(self._info, 4096))["child-pid"]
                self._inner = os.pidfd_open(self._first)
        except TimeoutError:
            raise UserError(
                f"a process for the sandbox was not ready within {_START_S:g} s. Run fewer at once: set num_at_once."
            ) from None
        except (EOFError, OSError):
            self._kill()
            _, stderr = await asyncio.to_thread(self._process.communicate)
            raise why_not(stderr.decode(errors="replace")) from None
        return self._scratch

    async def run(self, program: Program) -> Execution:
        """Run a program, kill the process, and return the result. Errors of the program raise no exception."""
        started = perf_counter()
        scratch = self._scratch if self._isolation.isolated else -1
        watched = Watched(self._first, scratch, self._group, self._limits)
        self._watch = Watch(watched, min(program.timeout_s, self._limits.wall_s), self._kill)
        self._watch.start()
        error = await self._wait_for_outcome(program)
        self._watch.stop()
        await self._stop()
        return Execution(
            stdout=self._stdout.text,
            stderr=self._stderr.text,
            error=error[: self._limits.output_chars],
            duration_s=perf_counter() - started,
            truncated=self._stdout.is_truncated or self._stderr.is_truncated,
            calls=tuple(self._channel.calls),
        )

    def end(self) -> None:
        """Kill all remaining processes and release the resources."""
        if self._watch:
            self._watch.stop()
        self._kill()
        self._process.kill()
        self._process.wait()
        if self._inner >= 0:
            ended = select.poll()  # `select.select` refuses descriptors above 1,023
            ended.register(self._inner, select.POLLIN)
            ended.poll(_END_S * 1000)
        self._stdout.stop()
        self._stderr.stop()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream
            stream.close()
        for descriptor in (self._info, self._outer, self._inner, self._scratch):
            if descriptor >= 0:
                os.close(descriptor)
        self._channel.close()
        if self._group:
            self._group.remove()
        if self._directory:
            self._directory.cleanup()

    async def _wait_for_outcome(self, program: Program) -> str:
        """Return the first error that stops the program: its own, a limit, or a violation of the protocol."""
        flood: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def finish() -> None:
            if not flood.done():  # both outputs may be flooded
                flood.set_result(f"the code printed more than {MAX_BYTES // 2**20} MiB, and was ended")

        for output in (self._stdout, self._stderr):
            output.start(finish)
        served = asyncio.create_task(self._serve(program))
        ended: asyncio.Future[None] = asyncio.create_task(_wait_for_end(self._outer))
        outcomes: set[asyncio.Future[str]] = {flood, served}
        try:
            await asyncio.wait((flood, served, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                # The program's last message may still be on its way. A tool may not have returned.
                await asyncio.wait(outcomes, timeout=_LAST_WORDS_S, return_when=asyncio.FIRST_COMPLETED)
            done = [outcome for outcome in (flood, served) if outcome.done()]
            return done[0].result() if done else self._reason()
        finally:
            for task in (served, ended):
                task.cancel()
            await asyncio.gather(served, ended, return_exceptions=True)

    async def _serve(self, program: Program) -> str:
        start = {
            "code": writable(program.code),
            "tools": [name for name, tool in program.tools.items() if not isinstance(tool, JsonTool)],
            "json_tools": [name for name, tool in program.tools.items() if isinstance(tool, JsonTool)],
            "limits": rlimits(self._limits),
        }
        try:
            return await self._channel.serve(start, program.tools, self._limits.num_calls)
        except BrokenChannel as error:
            return str(error)
        except EOFError:
            await _wait_for_end(self._outer)  # a program may close the channel and keep running
            return self._reason()

    def _reason(self) -> str:
        """Return the reason why the process exited before it reported the program's result."""
        status = self._process.wait()
        if self._watch and self._watch.reason:
            return self._watch.reason
        if self._group and self._group.num_killed():
            return out_of_memory(self._limits)
        number = -status if status < 0 else status - 128  # bubblewrap reports a signal as status 128 + number
        if number == signal.SIGXCPU:
            return f"the code used more than cpu_s = {self._limits.cpu_s} s of CPU time, and was ended"
        if number in set(signal.Signals):
            return f"the code was ended by {signal.Signals(number).name}"
        return f"the code ended its process itself, with status {status}"

    async def _stop(self) -> None:
        """Kill all processes, wait until they are gone, and read the rest of their output."""
        self._kill()
        try:
            async with asyncio.timeout(_END_S):
                for process in (self._inner, self._outer):
                    if process >= 0:
                        await _wait_for_end(process)
                await self._stdout.ended.wait()
                await self._stderr.ended.wait()
        except TimeoutError:  # without isolation, a process that left the group may keep the pipes open
            self._stdout.stop()
            self._stderr.stop()

    def _kill(self) -> None:
        """Kill the first process of the PID namespace; the kernel then kills all others in it. Before its id is known,
        kill the process group: after bubblewrap's death alone, a child could wait for it for ever."""
        with suppress(ProcessLookupError):
            if self._inner >= 0:
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            elif self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)


async def _wait_for_end(process: int) -> None:
    """Wait until a process exits. `process` is a pidfd, which then becomes readable."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(process, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process)


def rlimits(limits: Limits) -> list[tuple[int, tuple[int, int]]]:
    """Return the arguments of `setrlimit`: (resource, (soft limit, hard limit)) for each."""
    megabytes = 2**20
    same = {
        resource.RLIMIT_AS: limits.memory_mb * megabytes,
        resource.RLIMIT_NPROC: limits.num_processes,
        resource.RLIMIT_FSIZE: limits.file_mb * megabytes,
        resource.RLIMIT_NOFILE: limits.num_open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: limits.num_processes,  # timers and queued signals
        resource.RLIMIT_RTPRIO: 0,  # a program with real-time priority would block the host
        resource.RLIMIT_NICE: 0,
    }
    cpu = (limits.cpu_s, limits.cpu_s + 1)  # the soft limit sends SIGXCPU, which code may catch; the hard one kills
    return [(resource.RLIMIT_CPU, cpu), *((which, (limit, limit)) for which, limit in same.items())]
