"""Attacks on the isolation. Programs that judge themselves are in `attempts/exploits.py`; the others here have to be
watched by the host: on its processes, files and memory, and on the patience of whoever reads the output."""

import asyncio
import resource
import socket
import tempfile
import time
from pathlib import Path

import pytest

from packages.sandbox.tests.attempts.audit import run_exploit
from packages.sandbox.tests.attempts.exploits import CATCH_SIGNALS, SUCCEEDS, exploits
from packages.sandbox.tests.conftest import TOOLS, Run, processes_in
from slimrl_sandbox.base import Execution, Limits
from slimrl_sandbox.local import BubblewrapSandbox

pytestmark = pytest.mark.slow

NAMES = [exploit.name for exploit in exploits(0)]
ROOT = "import os, time, signal\nprint('root', os.stat('/').st_dev, flush=True)\n"


@pytest.mark.parametrize("name", NAMES)
def test_an_exploit_fails_in_isolation_and_succeeds_without(name: str, isolated: None) -> None:
    async def passes(isolation: str) -> bool:
        async with BubblewrapSandbox({}, Limits(), isolation=isolation) as sandbox:  # type: ignore[arg-type]
            return (await run_exploit(sandbox, exploit)).passed

    with socket.create_server(("127.0.0.1", 0)) as listening:
        exploit = next(one for one in exploits(listening.getsockname()[1]) if one.name == name)
        assert asyncio.run(passes("bubblewrap"))
        assert exploit.without != SUCCEEDS or not asyncio.run(passes("none"))
    assert NAMES.count(name) == 1


def nothing_is_left(execution: Execution) -> bool:
    word, root = execution.stdout.splitlines()[0].split()
    assert word == "root"
    # The number of a root that is gone may be that of another sandbox's now, for as long as that one runs something.
    deadline = time.monotonic() + 10
    while (left := processes_in(int(root))) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left == []


def test_tracebacks_of_the_runner_name_no_path_of_the_host(run: Run) -> None:
    execution = run("import os, sys\nprint(sys._getframe(1).f_code.co_filename)\nos.closerange(3, 256)")
    assert execution.stdout == "<runner>\n"
    assert "slimrl" not in execution.stderr and "Traceback" in execution.stderr


def test_reading_the_files_of_other_sessions(isolated: None) -> None:
    look = (
        "import os\n"
        "for folder, _, files in os.walk('/', onerror=None):\n"
        "    if folder.startswith(('/proc', '/usr')): continue\n"
        "    for name in files:\n"
        "        if name.startswith('my-own'): print(folder, name)"
    )

    async def scenario() -> tuple[Execution, Execution]:
        async with BubblewrapSandbox(TOOLS) as sandbox:
            await sandbox.run("open('my-own', 'w').write('x')", "a")
            running = asyncio.create_task(sandbox.run("open('my-own-2', 'w')\nimport time; time.sleep(1)", "a"))
            await asyncio.sleep(0.2)
            other = await sandbox.run(look, "../a")
            own = await sandbox.run("print(open('my-own').read())", "b/../a")
            await running
            return other, own

    other, own = asyncio.run(scenario())
    assert (other.stdout, other.error) == ("", "")
    assert "FileNotFoundError" in own.error


DAEMON = """
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
"""
KILL_FIRST = "try: os.kill(1, signal.{})\nexcept OSError: pass\ntime.sleep(0.1)"
COUNT = (
    "n = 0\ntry:\n    while n < 100:\n        if os.fork() == 0: time.sleep(30)\n        n += 1\n"
    "except BlockingIOError: pass\nassert 1 <= n < 8, n"
)
THREADS = "import threading\nfor _ in range(100): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()"


@pytest.mark.parametrize(
    ("code", "limits", "error"),
    [
        ("while True:\n    try: os.fork()\n    except OSError: pass", {"timeout_s": 1.0}, "timeout_s = 1"),
        *((KILL_FIRST.format(name), {}, "") for name in ("SIGKILL", "SIGTERM", "SIGSTOP", "SIGHUP", "SIGINT")),
        (DAEMON.format(pipes="pass"), {"session_id": "s"}, ""),
        (DAEMON.format(pipes="os.closerange(0, 256)"), {"session_id": "s"}, ""),
        ("if os.fork() == 0: time.sleep(60)", {}, ""),  # a child that holds the pipes
        ("if os.fork() == 0: time.sleep(60)\nos._exit(0)", {}, "ended its process itself, with status 0"),
        ("os.execv('/usr/bin/sleep', ['sleep', '1000'])", {"timeout_s": 0.5}, "timeout_s = 0.5"),
        (CATCH_SIGNALS, {"cpu_s": 1}, "SIGKILL"),
        (CATCH_SIGNALS, {"timeout_s": 0.5}, "timeout_s = 0.5"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", {"timeout_s": 0.5}, "timeout_s = 0.5"),
        (COUNT, {"num_processes": 8}, ""),
        (THREADS, {"num_processes": 8}, "can't start new thread"),
    ],
)
def test_no_process_lives_longer_than_its_execution(code: str, limits: dict[str, object], error: str, run: Run) -> None:
    execution = run(ROOT + code, **limits)
    assert error in execution.error and bool(error) == bool(execution.error) and execution.duration_s < 20
    assert nothing_is_left(execution)


def test_other_executions_are_neither_seen_nor_killed(isolated: None) -> None:
    look = (
        "import os, signal, time\ntime.sleep(0.3)\nseen = []\n"
        "for pid in range(1, 40_000):\n"
        "    try: os.kill(pid, 0); seen.append(pid)\n"
        "    except ProcessLookupError: pass\n"
        "    except PermissionError: seen.append(pid)\n"
        "    if pid > 1 and pid != os.getpid():\n"
        "        try: os.kill(pid, signal.SIGKILL)\n"
        "        except OSError: pass\n"
        "time.sleep(1)\nprint(seen)"
    )

    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox(TOOLS, num_at_once=4) as sandbox:
            return await asyncio.gather(*(sandbox.run(look) for _ in range(4)))

    assert [execution.stdout for execution in asyncio.run(scenario())] == ["[1, 2]\n"] * 4


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


def test_programs_of_the_system_gain_nothing(run: Run) -> None:
    code = (
        "import glob, os, shutil, subprocess\n"
        "for path in filter(os.path.isfile, glob.glob('/usr/bin/*')):\n"
        "    if os.stat(path).st_mode & 0o4000:\n"
        "        subprocess.run([path], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)\n"
        "shutil.copy('/usr/bin/id', 'id')\n"
        "os.chmod('id', 0o6755)\n"
        "print(subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout != '0\\n')\n"
        "try: print(subprocess.run(['bwrap', '--unshare-all', '--ro-bind', '/', '/', 'true']).returncode != 0)\n"
        "except FileNotFoundError: print(True)\n"
        "os.execv('/usr/bin/env', ['env'])"
    )
    execution = run(code)
    assert execution.stdout.startswith("True\nTrue\n") or not Path("/usr/bin/bwrap").exists()
    assert "SECRET" not in execution.stdout and "HOME=/scratch" in execution.stdout


MB_EACH = """
import mmap, os, time
for _ in range(3): os.fork()
x = mmap.mmap(-1, {megabytes} * 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, len(x), 4096): x[i] = 1
"""
UNNAMED = (
    "import os\nx = []\nwhile True:\n    x.append(open('x', 'wb'))\n    os.remove('x')\n    x[-1].write(bytes(2**20))"
)
SOCKETS = """
import os, socket, time
for _ in range(3): os.fork()
pairs = []
try:
    while True: pairs.append(socket.socketpair())
except OSError: pass
for pair in pairs:
    for end in pair:
        end.setblocking(False)
        try:
            while True: end.send(b'x' * 4096)
        except OSError: pass
time.sleep(30)
"""
PIPES = """
import os, time
pipes = []
for _ in range(3): os.fork()
try:
    while True:
        pipes.append(os.pipe())
        os.set_blocking(pipes[-1][1], False)
        while True:
            try: os.write(pipes[-1][1], bytes(4096))
            except BlockingIOError: break
except OSError: pass
x = bytearray(20 * 2**20)
time.sleep(30)
"""
SMALL = {"memory_mb": 64, "scratch_mb": 1, "timeout_s": 10.0}
# A process chooses its own name, which the kernel tells in the same lines as its memory.
NAMED = "import ctypes\nctypes.CDLL(None).prctl(15, {!r}, 0, 0, 0)\n" + MB_EACH.format(megabytes=40) + "time.sleep(30)"
DRIPPING = "import time\nwhile True:\n    print('x', end='', flush=True)\n    time.sleep(0.01)"
DEEP_REPR = "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())"
SPOILT = "import builtins, os, sys\nbuiltins.len = builtins.str = builtins.type = os._exit = sys.modules = None"


@pytest.mark.parametrize(
    ("code", "limits", "error"),
    [
        (MB_EACH.format(megabytes=60) + "time.sleep(30)", {"memory_mb": 128}, "memory_mb = 128"),
        *((code, SMALL, "memory_mb = 64") for code in (SOCKETS, PIPES)),
        *(
            (NAMED.format(name), {"memory_mb": 128}, "memory_mb = 128")
            for name in (b"\xff\xfe", b"\x0cVmPTE: -999999", b"\x1cRssAnon: -9")
        ),
        *((f"import os\nwhile True: os.write({number}, b'x' * 65536)", {}, "printed more than") for number in (1, 2)),
        (DRIPPING, {"timeout_s": 0.5}, "timeout_s"),
        ("open('x', 'wb').write(bytes(17 * 2**20))", {}, "File too large"),
        (UNNAMED, {"scratch_mb": 8}, "No space left"),
        ("import itertools, os\nfor i in itertools.count(): os.mkdir(f'd{i}')", {"num_files": 500}, "num_files = 500"),
        ("x = []\nwhile True: x.append(open('/dev/null'))", {}, "Too many open files"),
        ("def f(): f()\nf()", {}, "RecursionError"),
        (DEEP_REPR, {}, "e"),
        ("print(1)\0", {}, "null bytes"),
        ("(" * 10_000 + ")" * 10_000, {}, "e"),
        ("-" * 100_000 + "1", {}, "e"),
        ("print('\\udc80')\nprint('\\ud800')", {}, "UnicodeEncodeError"),
        ("raise ValueError('x' * 10**7)", {}, "ValueError"),
        ("raise type('E' * 10**6, (Exception,), {})('x')", {}, "E"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", {}, "E"),
        ("class E(BaseException):\n    def __str__(self): return 3\nraise E", {}, "E"),
        ("raise ValueError('\\ud800')", {}, "ValueError"),
        ("raise KeyboardInterrupt", {}, "KeyboardInterrupt"),
        ("raise ExceptionGroup('many', [ValueError(i) for i in range(10**5)])", {}, "ExceptionGroup"),
        ("exec('x' * 10**6)", {}, "NameError"),
        (SPOILT, {"timeout_s": 2.0}, ""),
    ],
)
def test_what_takes_too_much_or_fails_ends_with_its_reason(
    code: str, limits: dict[str, object], error: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the host keeps what belongs to a sandbox
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    execution = run(code, session_id="s", **limits)
    assert error in execution.error and len(execution.error) <= 20_000 and len(execution.stdout) <= 20_000
    assert execution.duration_s < 10 and list(tmp_path.iterdir()) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    (execution.stdout + execution.error).encode()


TICKS = "for _ in range(300):\n    print('tick', flush=True)\n    time.sleep(0.01)"


@pytest.mark.parametrize(
    ("code", "reason", "limits"),
    [
        (f"import time\n{TICKS}", "timeout_s = 0.3", {"wall_s": 0.3}),
        (MB_EACH.format(megabytes=40) + TICKS, "memory_mb = 128", {"memory_mb": 128}),
        (f"import time\nfor i in range(400): open(str(i), 'w')\n{TICKS}", "num_files = 300", {"num_files": 300}),
        ("print('tick')", "", {"wall_s": 0.9}),  # it ended, and has not failed
    ],
    ids=["time", "memory", "files", "none"],
)
def test_limits_hold_while_the_loop_computes(isolated: None, code: str, reason: str, limits: dict[str, float]) -> None:
    async def scenario() -> Execution:
        async with BubblewrapSandbox({}, Limits(**limits)) as sandbox:  # type: ignore[arg-type]
            task = asyncio.create_task(sandbox.run(code))
            await asyncio.sleep(0.1)
            time.sleep(1.5)
            return await task

    execution = asyncio.run(scenario())
    assert reason in execution.error and bool(reason) == bool(execution.error)
    assert execution.stdout.count("tick") < 8 * 45  # of 300 each: it was ended long before the loop went on
