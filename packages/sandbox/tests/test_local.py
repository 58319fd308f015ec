"""What a program gets and what comes back, where nothing is wrong with it; and with the limits, where something is."""

import asyncio
import errno
import os
import resource
import threading
import time
from typing import Any

import pytest

from packages.sandbox.tests.conftest import TOOLS, Run, run_all
from slimrl.errors import UserError
from slimrl_sandbox.base import Execution, Limits
from slimrl_sandbox.local import BubblewrapSandbox

ROWS = [{"id": "a", "n": 1, "x": 0.5, "none": None, "inner": {"k": [True]}}]
HERE: dict[str, Any] = {
    **TOOLS,
    "rows": lambda _: ROWS,
    "odd": lambda _: object(),
    "large": lambda _: "x" * 2**21,
}
THREADS = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
DATACLASS = (
    "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int\nif __name__ == '__main__': print(A(3))"
)
PROCESSES = """
import asyncio, multiprocessing, shutil, subprocess, sys
async def main():
    started = await asyncio.create_subprocess_exec('/usr/bin/env', 'echo', 'a', stdout=-1)
    return (await started.communicate())[0], await asyncio.to_thread(lambda: 2)
print(asyncio.run(main()))
child = multiprocessing.Process(target=print, args=('b',), kwargs={'flush': True})
child.start(); child.join()
open('c', 'w').write('c'); shutil.copy2('c', 'd')
print(subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True).stdout)
"""
SPOILT = "class Bad:\n    def write(self, text): raise ValueError\n    def flush(self): raise SystemExit(3)\n"


@pytest.mark.parametrize(
    ("code", "stdout", "error"),
    [
        (DATACLASS, "A(b=3)\n", ""),
        (
            "import json, re, math, collections, datetime, ctypes, sqlite3, subprocess, socket, threading, asyncio",
            "",
            "",
        ),
        (PROCESSES, "(b'a\\n', 2)\nb\nb'3\\n'\n", ""),
        (THREADS, "late\n", ""),
        ("print('\ud800')", "?\n", ""),  # in the code
        ("import os, sys\nprint('a', flush=True)\nsys.stdout.close()\nsys.stderr = None\nos.close(1)", "a\n", ""),
        (f"import sys\n{SPOILT}sys.stdout = sys.stderr = Bad()", "", ""),
        ("import sys\nsys.stdout.buffer.write(b'a\\xff\\xfe\\xed\\xa0\\x80\\0b')", "a" + "\ufffd" * 5 + "\0b", ""),
        ("import sys\nprint('out')\nprint('err', file=sys.stderr)", "out\nerr\n", ""),
        ("import sys; sys.exit(0)", "", ""),
        ("raise SystemExit(3)", "", "SystemExit: 3"),
        (
            "def f(x):\n    return 1 / x\n\nprint('before')\nf(0)",
            "before\n",
            "Traceback (most recent call last):\n  line 5: f(0)\n  line 2, in f: return 1 / x\n"
            "ZeroDivisionError: division by zero",
        ),
        ("x = 1\nif x\n  pass", "", "Traceback (most recent call last):\n  line 2: if x\nSyntaxError: expected ':'"),
        ("print(shout('a'), shout(text='ü'))", "A Ü\n", ""),
        ("print(rows(''))", f"{ROWS}\n", ""),
        ("try: broken('x')\nexcept ToolError as error: print(error)", "'there is no x'\n", ""),
        ("broken('y')", "", "Traceback (most recent call last):\n  line 1: broken('y')\nToolError: 'there is no y'"),
    ],
)
def test_what_a_program_prints_and_raises_comes_back(run: Run, code: str, stdout: str, error: str) -> None:
    execution = run(code, tools=HERE)
    assert (execution.stdout + execution.stderr, execution.error, execution.truncated) == (stdout, error, False)
    assert execution.duration_s > 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        *((call, 'ToolError: shout: .*It is called as shout\\("text"\\)') for call in ("shout()", "shout('a', 'b')")),
        ("shout(3)", "ToolError: shout: `text` must be text in quotes, not 3"),
        ("shout({1})", "TypeError"),
        ("odd('')", "not JSON serializable"),
        ("large('')", "larger than 1 MiB"),
        ("shout('\\ud800')", "half of a surrogate pair"),
    ],
)
def test_a_call_that_fails_is_told(run: Run, call: str, error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        raise AssertionError(run(call, tools=HERE).error)


def test_descriptors_of_any_number_will_do(run: Run) -> None:
    """There are as many as a server has open, and select() knows none above 1,023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2048:
        pytest.skip("this process may not have as many files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert run("print(1)").stdout == "1\n"
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_tools_that_never_return_hold_up_nobody(isolated: None) -> None:
    held = threading.Event()

    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox({"hang": lambda _: held.wait()}, Limits(wall_s=0.3), num_at_once=8) as sandbox:
            codes = ["hang('')"] * 8 + ["open('a', 'w')\nprint(1)"]
            return await asyncio.gather(*(sandbox.run(code, f"session {n}") for n, code in enumerate(codes)))

    started = time.perf_counter()
    *hung, ended = asyncio.run(scenario())
    assert time.perf_counter() - started < 10
    held.set()
    assert all("timeout_s" in execution.error for execution in hung) and ended.stdout == "1\n"


LEAVE = "import os\nopen('a', 'w').write('x')\nos.makedirs('d/e')\nopen('/tmp/d/e/b', 'wb').write(bytes(5000))\n"
ODD = (
    "for name in (b'\\xff\\xfe', b'a\\nb', b'-rf', b' ', b'...', b'~', b'$(reboot)'): open(name, 'w')\n"
    "os.mkfifo('fifo')\nos.symlink('/etc', 'link')\nos.mkdir('closed', 0)\nos.chmod(os.open('none', os.O_CREAT), 0)\n"
)
LOOK = "import os\nprint(open('a').read(), len(open('d/e/b', 'rb').read()))\nos.remove('a')"


def test_files_live_on_within_a_session_and_not_without(isolated: None) -> None:
    count = "import os\nprint(len(os.listdir(b'.')), os.path.lexists('fifo') or os.path.lexists('link'))\nopen('a')"
    _, found, gone = run_all([f"{LEAVE}{ODD}os.chdir('d')", LOOK, count], session_id="s")
    assert (found.stdout, found.error) == ("x 5000\n", "")
    assert (
        gone.stdout == "9 False\n" and "FileNotFoundError" in gone.error
    )  # links, pipes and unreadable files are not kept
    assert "FileNotFoundError" in run_all(["open('a', 'w')", "open('a')"])[1].error


@pytest.mark.parametrize("end", ["os._exit(0)", "while True: pass"])
def test_files_of_a_program_that_failed_live_on_and_one_that_was_ended_changes_none(isolated: None, end: str) -> None:
    programs = [f"{LEAVE}1/0", f"import os\nopen('a', 'w')\n{end}", LOOK]
    assert run_all(programs, session_id="s", timeout_s=0.5)[2].stdout == "x 5000\n"


def test_files_that_are_too_large_are_not_kept(isolated: None) -> None:
    sparse = "import os\nfor i in range(20):\n    with open(str(i), 'wb') as f: f.truncate(2**20)"
    left, found = run_all([sparse, "import os; print(os.listdir('.'))"], session_id="s", scratch_mb=8)
    assert "none were kept" in left.error and found.stdout == "[]\n"


def test_sessions_are_kept_up_to_a_size_and_until_their_end(isolated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl_sandbox.local.MAX_SESSION_BYTES", 5 * MB)

    async def scenario() -> list[bool]:
        async with BubblewrapSandbox({}) as sandbox:
            for number in range(4):
                await sandbox.run("open('x', 'wb').write(bytes(2 * 2**20))", f"s{number}")
            await sandbox.end_session("s3")
            look = "import os\nprint(os.path.exists('x'))"
            return [(await sandbox.run(look, f"s{number}")).stdout == "True\n" for number in range(4)]

    assert asyncio.run(scenario()) == [False, False, True, False]


def test_cancelled_executions_leave_the_sandbox_working(isolated: None, nothing_left: None) -> None:
    async def scenario() -> Execution:
        async with BubblewrapSandbox(TOOLS, num_at_once=1) as sandbox:
            running = [asyncio.create_task(sandbox.run("while True: pass", session)) for session in ("s", "t")]
            await asyncio.sleep(0.3)
            for task in running:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return await sandbox.run("print(1)", "s")

    assert asyncio.run(scenario()).stdout == "1\n"


def test_a_sandbox_that_is_closed_ends_what_runs(isolated: None, nothing_left: None) -> None:
    async def scenario() -> None:
        sandbox = BubblewrapSandbox(TOOLS)
        running = asyncio.create_task(sandbox.run("while True: pass"))
        await asyncio.sleep(0.3)
        started = time.perf_counter()
        sandbox.close()
        assert time.perf_counter() - started < 5
        await running

    asyncio.run(scenario())


def test_a_process_that_cannot_be_started_leaves_nothing(
    isolated: None, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario() -> None:
        async with BubblewrapSandbox({}) as sandbox:
            await sandbox.run("")
            before = set(os.listdir("/proc/self/fd"))
            with monkeypatch.context() as patch:
                patch.setattr(os, "pidfd_open", refuse)
                for _ in range(12):  # bubblewrap is killed at any of its steps
                    with pytest.raises(UserError, match=r"no process can be started .*Too many open files.*ulimit -n"):
                        await sandbox.run("print(1)")
            assert set(os.listdir("/proc/self/fd")) == before
            assert (await sandbox.run("print(1)")).stdout == "1\n"

    asyncio.run(scenario())


def test_one_sandbox_serves_one_loop_after_another(isolated: None) -> None:
    sandbox = BubblewrapSandbox(TOOLS)
    for number in range(3):
        assert asyncio.run(sandbox.run(f"print({number})", "s")).stdout == f"{number}\n"
    sandbox.close()


def test_time_out(run: Run) -> None:
    execution = run("print('before')\nwhile True: pass", timeout_s=0.5)
    assert execution.stdout == "before\n"
    assert execution.error == "the code took longer than timeout_s = 0.5 s, and was ended"
    assert 0.5 <= execution.duration_s < 10
    assert "timeout_s = 0.3 s" in run("import time; time.sleep(9)", wall_s=0.3, timeout_s=100.0).error


@pytest.mark.slow
def test_cpu_time_ends(run: Run) -> None:
    assert run("while True: pass", cpu_s=1).error == "the code used more than cpu_s = 1 s of CPU time, and was ended"


def test_output_is_cut(run: Run) -> None:
    for number, expected in ((1000, ("ü" * 10, True)), (9, ("ü" * 9 + "\n", False))):
        execution = run(f"print('ü' * {number})", output_chars=10)
        assert (execution.stdout, execution.truncated) == expected


MB = 2**20
RLIMITS = {"CPU": 10, "AS": 512 * MB, "NPROC": 16, "FSIZE": 16 * MB, "NOFILE": 64, "CORE": 0}


def test_limits_are_set_and_cannot_be_raised(run: Run) -> None:
    code = (
        f"import resource\nfor name, limit in {RLIMITS}.items():\n"
        "    which = getattr(resource, f'RLIMIT_{name}')\n"
        "    hard = limit + (name == 'CPU')\n"
        "    assert resource.getrlimit(which) == (limit, hard)\n"
        "    try: resource.setrlimit(which, (hard + 1, hard + 1))\n"
        "    except (ValueError, OSError): print('no')"
    )
    execution = run(code)
    assert execution.error == "" and execution.stdout == "no\n" * len(RLIMITS)
