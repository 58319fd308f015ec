"""Programs of a model, and clients of the sandbox's server, that take more than their share: F1, F9, F10, F13."""

import asyncio
import errno
import json
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.sandbox.tests.attempts.exploits import PAGE_TABLES
from packages.sandbox.tests.conftest import Run, isolated, run, run_all  # noqa: F401  # fixtures
from slimrl.errors import UserError
from slimrl_sandbox import cgroup, channel, local
from slimrl_sandbox.base import Execution, Limits
from slimrl_sandbox.channel import BrokenChannel, Channel
from slimrl_sandbox.client import HttpSandbox
from slimrl_sandbox.files import TooMuch, copy_tree
from slimrl_sandbox.local import BubblewrapSandbox
from slimrl_sandbox.server import make_app
from slimrl_sandbox.sessions import Keeping
from slimrl_sandbox.watch import Watch

pytestmark = pytest.mark.slow

PRIVATE = "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS"


@pytest.fixture(params=["by cgroup", "by polling"])
def counted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is counted in each of the two ways."""
    if request.param == "by polling":
        monkeypatch.setattr(local, "find_parent", lambda: None)
    elif local.find_parent() is None:
        pytest.skip("this user may make no cgroup")


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


@pytest.mark.parametrize("code", [SOCKETS, PIPES, PAGE_TABLES], ids=["sockets", "pipes", "page tables"])
def test_memory_of_the_kernel_counts(counted: None, run: Run, code: str) -> None:  # noqa: F811
    settings = {"memory_mb": 64, "scratch_mb": 1}
    execution = run(code, timeout_s=5.0, **settings)
    # In a cgroup the kernel also may refuse a buffer, and the program goes on with what it has.
    assert "memory_mb = 64" in execution.error or (code is SOCKETS and "timeout_s" in execution.error)
    if code is not SOCKETS:
        assert execution.duration_s < 4


# A process chooses its own name, which the kernel tells in the same lines as its memory.
NAMED = """
import ctypes, mmap, os, time
ctypes.CDLL(None).prctl(15, {name!r}, 0, 0, 0)
for _ in range(2): os.fork()
x = mmap.mmap(-1, 40 * 2**20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, len(x), 4096): x[i] = 1
time.sleep(30)
"""


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x0cVmPTE: -999999", b"\x1cRssAnon: -9"])
def test_a_name_hides_no_memory(name: bytes, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:  # noqa: F811
    monkeypatch.setattr(local, "find_parent", lambda: None)
    assert "memory_mb = 128" in run(NAMED.format(name=name), timeout_s=10.0, memory_mb=128).error


def test_what_cannot_be_watched_is_ended_and_others_are_watched(
    monkeypatch: pytest.MonkeyPatch,
    run: Run,  # noqa: F811
) -> None:
    check = Watch._find_excess

    def fail(watch: Watch) -> str:
        if watch._timeout_s == 5.0:
            raise ValueError("unreadable")
        return check(watch)

    monkeypatch.setattr(Watch, "_find_excess", fail)
    assert "could not be watched (ValueError('unreadable'))" in run("import time; time.sleep(30)", timeout_s=5.0).error
    assert "timeout_s = 0.3" in run("import time; time.sleep(30)", timeout_s=0.3).error


def test_a_process_that_cannot_be_started_leaves_nothing(isolated: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def groups() -> int:
        cgroup._remove_ended()  # the kernel may have held on to one for a moment
        parent = local.find_parent()
        return len(list(parent.glob(f"slimrl-sandbox-{os.getpid()}-*"))) if parent else 0

    async def scenario() -> None:
        open_pidfd, refusing = os.pidfd_open, [True]

        def refuse(pid: int) -> int:
            if refusing:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return open_pidfd(pid)

        async with BubblewrapSandbox({}, num_spare=1) as sandbox:
            before, num_groups = set(os.listdir("/proc/self/fd")), groups()
            monkeypatch.setattr(os, "pidfd_open", refuse)
            for _ in range(12):  # bubblewrap is killed at any of its steps
                with pytest.raises(UserError, match=r"no process can be started .*Too many open files.*ulimit -n"):
                    await sandbox.run("print(1)")
            until(lambda: groups() <= num_groups)
            assert set(os.listdir("/proc/self/fd")) == before
            refusing.clear()
            replace = sandbox._replace
            monkeypatch.setattr(sandbox, "_replace", lambda: (refusing.append(True), replace()))
            assert (await sandbox.run("print(1)")).stdout == "1\n"  # though no spare one could be started after it

    asyncio.run(scenario())


def test_tools_that_never_return_have_a_bound_for_all_who_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr(channel, "_places", threading.BoundedSemaphore(2))

    async def scenario() -> None:
        tools = {"hang": lambda _: released.wait(30), "quick": str.upper}
        left = [asyncio.create_task(channel.call(tools, "hang", "")) for _ in range(2)]
        await asyncio.sleep(0.05)
        for one in left:
            one.cancel()
        assert "quick was not called" in (await channel.call(tools, "quick", "a"))["error"]
        released.set()
        while "error" in (answer := await channel.call(tools, "quick", "a")):
            await asyncio.sleep(0.01)
        assert answer == {"result": "A"}

    asyncio.run(scenario())


@pytest.mark.parametrize("limit", ["ttl_s", "num_sessions", "sessions_mb"])
def test_bounds_that_allow_nothing_are_refused(limit: str) -> None:
    for value in (0, -1, math.nan):
        with pytest.raises(UserError, match=f"limit {limit} = {value} is none"):
            Keeping(**{limit: value})
    with pytest.raises(UserError, match="limit max_queue = 0 is none"):
        make_app(Waiting(), {}, "", max_queue=0)


def test_asyncio_and_processes_work_as_ever(run: Run) -> None:  # noqa: F811
    code = (
        "import asyncio, multiprocessing, shutil, subprocess, sys\n"
        "async def main():\n"
        "    started = await asyncio.create_subprocess_exec('/usr/bin/env', 'echo', 'a', stdout=-1)\n"
        "    return (await started.communicate())[0], await asyncio.to_thread(lambda: 2)\n"
        "print(asyncio.run(main()))\n"
        "child = multiprocessing.Process(target=print, args=('b',), kwargs={'flush': True})\n"
        "child.start(); child.join()\n"
        "open('c', 'w').write('c'); shutil.copy2('c', 'd')\n"
        "print(subprocess.run([sys.executable, '-c', 'print(3)'], capture_output=True).stdout)"
    )
    execution = run(code)
    assert (execution.stdout, execution.error) == ("(b'a\\n', 2)\nb\nb'3\\n'\n", "")


TICKS = "for _ in range(300):\n    print('tick', flush=True)\n    time.sleep(0.01)"
GREEDY = f"import mmap, os, time\nx = mmap.mmap(-1, 40 * 2**20, {PRIVATE})\nfor i in range(0, len(x), 4096): x[i] = 1\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason", "limits"),
    [
        (f"import time\n{TICKS}", "timeout_s = 0.3", {"wall_s": 0.3}),
        (f"import os\nfor _ in range(3): os.fork()\n{GREEDY}{TICKS}", "memory_mb = 128", {"memory_mb": 128}),
        (f"import time\nfor i in range(400): open(str(i), 'w')\n{TICKS}", "num_files = 300", {"num_files": 300}),
    ],
    ids=["time", "memory", "files"],
)
def test_limits_hold_while_the_loop_computes(
    isolated: None,  # noqa: F811
    counted: None,
    code: str,
    reason: str,
    limits: dict[str, Any],
) -> None:
    async def scenario() -> Execution:
        async with BubblewrapSandbox({}, Limits(**limits), num_spare=0) as sandbox:
            task = asyncio.create_task(sandbox.run(code))
            await asyncio.sleep(0.1)
            time.sleep(0.9)
            return await task

    execution = asyncio.run(scenario())
    assert reason in execution.error
    assert execution.stdout.count("tick") < 8 * 45  # of 300 each: it was ended long before the loop went on


def test_a_program_that_ended_while_the_loop_computed_has_not_failed(isolated: None) -> None:  # noqa: F811
    async def scenario() -> Execution:
        async with BubblewrapSandbox({}, Limits(wall_s=3.0), num_spare=0) as sandbox:
            task = asyncio.create_task(sandbox.run("print(1)"))
            await asyncio.sleep(0.2)
            time.sleep(3.5)
            return await task

    assert asyncio.run(scenario()).error == ""


class Own(BaseException):
    def __str__(self) -> str:
        raise self


def test_exceptions_of_tools_of_any_kind_are_errors_of_the_call(run: Run) -> None:  # noqa: F811
    def raising(error: BaseException) -> Callable[[str], None]:
        def tool(_: str) -> None:
            raise error

        return tool

    kinds = [StopIteration("x"), SystemExit(3), GeneratorExit(), KeyboardInterrupt(), asyncio.CancelledError(), Own()]
    tools = {f"t{number}": raising(kind) for number, kind in enumerate(kinds)}
    code = "for tool in (" + ", ".join(tools) + "):\n    try: tool('')\n    except ToolError as error: print(error)"
    execution = run(code, tools=tools, timeout_s=3.0)
    assert execution.error == ""
    assert execution.stdout.split() == ["x", "3", "GeneratorExit", "KeyboardInterrupt", "CancelledError", "Own"]


def test_tools_that_never_return_hold_up_nobody(isolated: None) -> None:  # noqa: F811
    held = threading.Event()
    codes = ["hang('')"] * 8 + ["open('a', 'w')\nprint(1)"]

    async def scenario() -> list[Execution]:
        async with BubblewrapSandbox({"hang": lambda _: held.wait()}, Limits(wall_s=0.1), num_at_once=8) as sandbox:
            return await asyncio.gather(*(sandbox.run(code, f"session {n}") for n, code in enumerate(codes)))

    started = time.perf_counter()
    *hung, ended = asyncio.run(scenario())
    assert time.perf_counter() - started < 10
    held.set()
    assert all("timeout_s" in execution.error for execution in hung)
    assert ended.stdout == "1\n"


def test_sessions_are_kept_up_to_a_number_and_a_size(isolated: None) -> None:  # noqa: F811
    async def scenario(keeping: Keeping, megabytes: int) -> list[bool]:
        async with BubblewrapSandbox({}, num_spare=0, keeping=keeping) as sandbox:
            for number in range(4):
                await sandbox.run(f"open('x', 'wb').write(bytes({megabytes} * 2**20))", f"s{number}")
            look = "import os\nprint(os.path.exists('x'))"
            return [(await sandbox.run(look, f"s{number}")).stdout == "True\n" for number in (3, 2, 1, 0)]

    assert asyncio.run(scenario(Keeping(num_sessions=2), 0)) == [True, True, False, False]
    assert asyncio.run(scenario(Keeping(sessions_mb=5), 2)) == [True, True, False, False]


def test_files_for_which_sessions_in_use_leave_no_room_are_told(isolated: None) -> None:  # noqa: F811
    (execution,) = run_all(["open('x', 'wb').write(bytes(2**21))"], session_id="s", keeping=Keeping(sessions_mb=1))
    assert "sessions_mb" in execution.error


class Waiting:
    """A sandbox whose executions end when they are cancelled; it counts them."""

    def __init__(self) -> None:
        self.num_running = 0
        self.num_cancelled = 0

    async def run(self, code: str, session_id: str = "", timeout_s: float = 0.0) -> Execution:
        self.num_running += 1
        try:
            await asyncio.sleep(30 if code == "wait" else 0)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        finally:
            self.num_running -= 1
        return Execution("", "", "", 0.0, truncated=False)


@contextmanager
def serving(sandbox: Waiting | BubblewrapSandbox, max_queue: int) -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        app = make_app(sandbox, {}, "", max_queue=max_queue)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def post(address: tuple[str, int], code: str) -> socket.socket:
    body = json.dumps({"code": code}).encode()
    head = f"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    client = socket.create_connection(address)
    client.sendall(f"{head}\r\n\r\n".encode() + body)
    return client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_client_that_leaves_cancels_what_it_asked_for() -> None:
    sandbox = Waiting()
    with serving(sandbox, max_queue=5) as address:
        clients = [post(address, "wait") for _ in range(5)]
        until(lambda: sandbox.num_running == 5)
        full = httpx.post(f"http://127.0.0.1:{address[1]}/execute", json={"code": ""})
        assert full.status_code == 503 and full.headers["Retry-After"] == "1"
        assert "queue is full: 5 requests" in full.json()["error"]
        for client in clients:
            client.close()
        until(lambda: sandbox.num_cancelled == 5)
        assert httpx.post(f"http://127.0.0.1:{address[1]}/execute", json={"code": ""}).status_code == 200


@pytest.mark.slow
def test_a_client_waits_while_the_queue_is_full() -> None:
    async def scenario(address: tuple[str, int], leave: Callable[[], None]) -> Execution:
        async with HttpSandbox(f"http://127.0.0.1:{address[1]}") as client:
            asyncio.get_running_loop().call_later(0.1, leave)
            return await client.run("")

    sandbox = Waiting()
    with serving(sandbox, max_queue=1) as address:
        first = post(address, "wait")
        until(lambda: sandbox.num_running == 1)
        assert asyncio.run(scenario(address, first.close)).error == ""


def test_programs_of_clients_that_have_left_are_ended(isolated: None) -> None:  # noqa: F811
    sandbox = BubblewrapSandbox({}, Limits(wall_s=5), num_at_once=2, num_spare=0)
    with serving(sandbox, max_queue=100) as address:
        for _ in range(20):
            post(address, "while True: pass").close()
        started = time.perf_counter()
        reply = httpx.post(f"http://127.0.0.1:{address[1]}/execute", json={"code": "print(1)"}, timeout=60)
        assert reply.json()["stdout"] == "1\n"
        assert time.perf_counter() - started < 4
    sandbox.close()


def message(value: Any) -> bytes:
    content = json.dumps(value).encode()
    return len(content).to_bytes(4, "big") + content


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.fixed_dictionaries(
    {}, optional={"done": VALUES, "error": VALUES, "tool": VALUES | st.just("shout"), "argument": VALUES}
)
PARTS = st.binary(max_size=50) | FIELDS.map(message) | VALUES.map(message)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(parts=st.lists(PARTS, max_size=5))
def test_nothing_that_the_other_end_sends_raises_anything_else(parts: list[bytes]) -> None:
    async def scenario() -> str:
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        with theirs:
            theirs.sendall(b"".join(parts))
            theirs.shutdown(socket.SHUT_WR)
            tools = {"shout": str.upper}
            served: Awaitable[str] = channel.serve({"code": "", "tools": [], "limits": []}, tools, 3)
            error = await asyncio.wait_for(served, 5)
        assert len(channel.calls) <= 3
        return error

    try:
        asyncio.run(scenario()).encode()
    except (EOFError, BrokenChannel) as error:
        str(error).encode()


NAMES = st.sampled_from(["a", "b", "-rf", " ", "~", "\udcff", "x" * 200])
TREES = st.recursive(
    st.binary(max_size=9000) | st.sampled_from(["link", "pipe", "closed"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


def plant(tree: dict[str, Any], directory: Path, secret: Path) -> None:
    for name, node in tree.items():
        path = directory / name
        if isinstance(node, dict):
            path.mkdir()
            plant(node, path, secret)
        elif node == "link":
            path.symlink_to(secret)
        elif node == "pipe":
            os.mkfifo(path)
        elif node == "closed":
            path.touch(mode=0)
        else:
            path.write_bytes(node)


def contents(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in directory.iterdir():
        assert not path.is_symlink() and (path.is_file() or path.is_dir())
        found[path.name] = contents(path) if path.is_dir() else path.read_bytes()
    return found


def kept(tree: dict[str, Any]) -> dict[str, Any]:
    """What may be copied of a tree; root reads closed files too."""
    plain = {name: kept(node) if isinstance(node, dict) else node for name, node in tree.items()}
    plain = {name: b"" if node == "closed" else node for name, node in plain.items()}
    return {name: node for name, node in plain.items() if node not in ("link", "pipe")}


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(tree=TREES, num_bytes=st.integers(0, 30_000), num_files=st.integers(0, 12))
def test_of_any_tree_only_files_are_kept_and_no_more_than_may_be(
    tree: dict[str, Any], num_bytes: int, num_files: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target, secret = Path(directory, "source"), Path(directory, "target"), Path(directory, "secret")
        source.mkdir()
        target.mkdir()
        secret.write_text("the host's")
        plant(tree, source, secret)
        ends = [os.open(path, os.O_RDONLY) for path in (source, target)]
        try:
            taken = copy_tree(*ends, num_bytes, num_files)
        except TooMuch:
            assert sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) <= num_bytes + 2**20
        else:
            assert contents(target) == (kept(tree) if os.geteuid() == 0 else contents(target))
            assert 0 <= taken <= num_bytes
            assert len(list(target.rglob("*"))) <= num_files
        finally:
            for end in ends:
                os.close(end)
