"""Attempts against other processes, and to live longer than one's execution or get more rights than it has."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import TOOLS, Run, processes_in
from slimrl_sandbox.base import Execution
from slimrl_sandbox.local import BubblewrapSandbox

pytestmark = pytest.mark.slow

ROOT = "import os\nprint('root', os.stat('/').st_dev, flush=True)\n"


def nothing_is_left(execution: Execution) -> bool:
    word, root = execution.stdout.splitlines()[0].split()
    assert word == "root"
    # The number of a root that is gone may be that of another sandbox's now, for as long as that one runs something.
    deadline = time.monotonic() + 10
    while (left := processes_in(int(root))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left == []


def test_processes_that_run_are_found(run: Run) -> None:
    """That `nothing_is_left` can tell."""
    seen = []
    execution = run(
        "import os\nlook(str(os.stat('/').st_dev))",
        tools={"look": lambda root: seen.append(len(processes_in(int(root))))},
    )
    assert execution.error == "" and seen[0] >= 1


def test_a_fork_bomb(run: Run) -> None:
    bomb = "while True:\n    try: os.fork()\n    except OSError: pass"
    execution = run(ROOT + bomb, timeout_s=1.0)
    assert "timeout_s = 1" in execution.error and execution.duration_s < 5
    assert nothing_is_left(execution)


def test_processes_are_counted(run: Run) -> None:
    count = (
        "import time\nn = 0\n"
        "try:\n    while n < 100:\n        if os.fork() == 0: time.sleep(30)\n        n += 1\n"
        "except BlockingIOError: pass\nprint(n)"
    )
    execution = run(ROOT + count, num_processes=8)
    assert 1 <= int(execution.stdout.split()[-1]) < 8
    assert nothing_is_left(execution)


def test_threads_are_counted(run: Run) -> None:
    code = (
        "import threading, time\n"
        "for _ in range(100): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()"
    )
    assert "can't start new thread" in run(code, num_processes=8).error


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGSTOP"])
def test_killing_the_host(run: Run, signal_name: str) -> None:
    code = (
        "import os, signal\n"
        f"for pid in ({os.getpid()}, {os.getppid()}, -1):\n"
        f"    try: os.kill(pid, signal.{signal_name})\n"
        "    except OSError: pass\n"
        "print('alive')"
    )
    assert run(code, timeout_s=2.0).stdout == "alive\n"


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGTERM", "SIGSTOP", "SIGHUP", "SIGINT"])
def test_killing_the_first_process_inside(run: Run, signal_name: str) -> None:
    code = (
        f"import signal, time\ntry: os.kill(1, signal.{signal_name})\nexcept OSError: pass\n"
        "time.sleep(0.1)\nprint('alive')"
    )
    assert nothing_is_left(run(ROOT + code, timeout_s=2.0))


def test_only_ones_own_processes_are_seen(isolated: None) -> None:
    look = (
        "import os, time\ntime.sleep(0.3)\n"
        "for pid in range(1, 40_000):\n"
        "    try: os.kill(pid, 0); print(pid)\n"
        "    except ProcessLookupError: pass\n"
        "    except PermissionError: print(pid)"
    )

    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox(TOOLS, num_at_once=4) as sandbox:
            return await asyncio.gather(*(sandbox.run(look) for _ in range(4)))

    for execution in asyncio.run(scenario()):
        assert execution.stdout == "1\n2\n"


@pytest.mark.slow
def test_siblings_cannot_be_killed(isolated: None) -> None:
    kill = (
        "import os, signal\n"
        "for pid in range(2, 40_000):\n"
        "    if pid != os.getpid():\n"
        "        try: os.kill(pid, signal.SIGKILL)\n"
        "        except OSError: pass"
    )

    async def scenario() -> Execution:
        async with BubblewrapSandbox(TOOLS, num_at_once=4) as sandbox:
            victim = asyncio.create_task(sandbox.run("import time; time.sleep(1); print('alive')"))
            await asyncio.sleep(0.2)
            await asyncio.gather(*(sandbox.run(kill) for _ in range(3)))
            return await victim

    assert asyncio.run(scenario()).stdout == "alive\n"


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, 1, 0, 0)",
        "ptrace(16, os.getppid(), 0, 0)",
        "ptrace(0, 0, 0, 0)",
        "unshare(0x10000000)",
        "unshare(0x00020000)",
        "setns(0, 0)",
        "mount(b'none', b'/scratch', b'tmpfs', 0, 0)",
        "umount2(b'/scratch', 2)",
        "chroot(b'/scratch')",
        "setuid(0)",
        "memfd_create(b'x', 0)",
        "shmget(0, 4096, 0o1777)",
        "msgget(0, 0o1777)",
        "semget(0, 1, 0o1777)",
        "personality(0x0040000)",
        "syscall(321, 0, 0, 0)",
        "syscall(250, 0, -4, 0)",
        "syscall(425, 1, 0)",
        "syscall(298, 0, 0, 0, 0, 0)",
        "syscall(323, 0)",
        "syscall(56, 0x10000011, 0, 0, 0, 0)",
        "syscall(435, 0, 0)",
        "syscall(0x40000000 + 39)",
    ],
)
def test_calls_that_the_filter_refuses(run: Run, call: str) -> None:
    if os.uname().machine != "x86_64" and "syscall(" in call:
        pytest.skip("the numbers are those of x86-64")
    code = (
        f"import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\nprint(c.{call}, ctypes.get_errno() in (1, 22, 38))"
    )
    assert run(code).stdout == "-1 True\n"


def test_there_are_no_privileges_to_be_had(run: Run) -> None:
    found: list[str] = []

    def look(root: str) -> None:
        found.extend(Path(f"/proc/{max(processes_in(int(root)))}/status").read_text().split("\n"))

    assert run("import os\nlook(str(os.stat('/').st_dev))", tools={"look": look}).error == ""
    status = dict(line.split(":", 1) for line in found if ":" in line)
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    for capabilities in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[capabilities], 16) == 0
    assert "0" not in status["Uid"].split() and "0" not in status["Gid"].split()
    assert status["Groups"].split() in ([], ["65534"])


def test_setuid_programs_gain_nothing(run: Run) -> None:
    code = (
        "import glob, os, shutil, subprocess\n"
        "for path in filter(os.path.isfile, glob.glob('/usr/bin/*')):\n"
        "    if os.stat(path).st_mode & 0o4000:\n"
        "        subprocess.run([path], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)\n"
        "shutil.copy('/usr/bin/id', 'id')\n"
        "os.chmod('id', 0o6755)\n"
        "print(subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout != '0\\n')"
    )
    execution = run(code)
    assert (execution.stdout, execution.error) == ("True\n", "")


DAEMON = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        {pipes}
        while True:
            time.sleep(0.01)
            open('beat', 'a').write('x')
    os._exit(0)
os.wait()
time.sleep(0.1)
print('end')
"""


@pytest.mark.parametrize("pipes", ["pass", "os.closerange(0, 256)"])
def test_a_daemon_does_not_live_on(run: Run, pipes: str) -> None:
    execution = run(ROOT + DAEMON.format(pipes=pipes), session_id="s")
    assert execution.stdout.endswith("end\n") and execution.error == ""
    assert nothing_is_left(execution)


def test_a_child_that_holds_the_pipes_holds_up_nobody(run: Run) -> None:
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nprint('parent')"
    execution = run(code)
    assert execution.stdout == "parent\n" and execution.duration_s < 30


def test_a_child_that_only_sleeps_after_the_parent_exits(run: Run) -> None:
    execution = run(ROOT + "import time\nif os.fork() == 0:\n    time.sleep(60)\nos._exit(0)")
    assert "ended its process itself, with status 0" in execution.error and execution.duration_s < 30
    assert nothing_is_left(execution)


def test_other_programs_run_inside_too(run: Run) -> None:
    execution = run("import os\nos.execv('/usr/bin/env', ['env'])")
    assert "SECRET" not in execution.stdout and "HOME=/scratch" in execution.stdout
    execution = run(ROOT + "os.execv('/usr/bin/sleep', ['sleep', '1000'])", timeout_s=0.5)
    assert "timeout_s = 0.5" in execution.error
    assert nothing_is_left(execution)


def test_a_sandbox_inside_the_sandbox(run: Run) -> None:
    code = (
        "import subprocess\nprint(subprocess.run(['bwrap', '--unshare-all', '--ro-bind', '/', '/', 'true']).returncode)"
    )
    execution = run(code)
    assert execution.stdout != "0\n"


@pytest.mark.slow
def test_catching_every_signal_does_not_help(run: Run) -> None:
    code = (
        "import signal\n"
        "for number in range(1, 65):\n"
        "    try: signal.signal(number, lambda *_: None)\n"
        "    except (OSError, ValueError): pass\n"
        "while True:\n"
        "    try:\n"
        "        while True: pass\n"
        "    except BaseException: pass\n"
    )
    started = time.perf_counter()
    assert "SIGKILL" in run(ROOT + code, cpu_s=1).error
    assert "timeout_s = 0.5" in run(ROOT + code, timeout_s=0.5).error
    assert time.perf_counter() - started < 10


@pytest.mark.slow
def test_stopping_oneself(run: Run) -> None:
    execution = run(ROOT + "import signal\nos.kill(os.getpid(), signal.SIGSTOP)", timeout_s=0.5)
    assert "timeout_s = 0.5" in execution.error
    assert nothing_is_left(execution)
