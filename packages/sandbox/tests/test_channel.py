"""Code that speaks to the host itself, over the socket that its tools use. All it can get is an error of its own."""

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.sandbox.tests.conftest import TOOLS, Run, run_all
from slimrl_sandbox import runner
from slimrl_sandbox.calls import BrokenChannel, Channel

# The socket is the one descriptor above 2 that the code finds open. `say` sends a message as it should be sent.
PRELUDE = """
import os, socket, stat, time
def is_socket(n):
    try: return stat.S_ISSOCK(os.fstat(n).st_mode)
    except OSError: return False
channel = socket.socket(fileno=next(n for n in range(3, 256) if is_socket(n)))
def say(content):
    content = content.encode() if isinstance(content, str) else content
    channel.sendall(len(content).to_bytes(4, 'big') + content)
def wait(): time.sleep(30)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("say('nonsense'); wait()", "not JSON"),
        ("say(b'\\xff\\xfe'); wait()", "not JSON"),
        ("say('[' * 100_000); wait()", "not JSON"),
        ("say('1' * 100_000); wait()", "not JSON"),
        ("say('[1]'); wait()", "no object"),
        ("say('{}'); wait()", "no text `tool`"),
        ('say(\'{"tool": "shout"}\'); wait()', "no `arguments`"),
        *((f'say(\'{{"tool": "shout", "arguments": {one}}}\'); wait()', "no `arguments`") for one in ("3", "[[]]")),
        ('say(\'{"tool": "__import__", "arguments": [[], {}]}\'); wait()', "a tool that there is not: '__import__'"),
        ('say(\'{"tool": "\\\\ud800", "arguments": [[], {}]}\'); wait()', "a tool that there is not: '\\?'"),
        ("say('{\"done\": true}'); wait()", "no text `error`"),
        ("channel.sendall(b'\\xff\\xff\\xff\\xff'); wait()", "larger than 1 MiB"),
        ("say(b'x' * (2**20 + 1)); wait()", "larger than 1 MiB"),
        ("import pickle; say(pickle.dumps(print)); wait()", "not JSON"),
    ],
)
def test_a_message_that_breaks_a_rule_ends_the_execution(run: Run, code: str, complaint: str) -> None:
    execution = run(f"print('before')\n{PRELUDE}\n{code}")
    assert complaint.replace("\\?", "?") in execution.error
    assert execution.stdout == "before\n"
    assert execution.duration_s < 10


def test_calls_are_counted(run: Run) -> None:
    calls = []
    execution = run("while True: count('x')", tools={"count": lambda text: calls.append(text)}, num_calls=7)
    assert "more than num_calls = 7" in execution.error
    assert len(calls) == 7


def test_as_many_calls_as_allowed_pass(run: Run) -> None:
    assert run("for _ in range(7): shout('x')", num_calls=7).error == ""


@pytest.mark.slow
def test_half_a_message_waits_no_longer_than_the_time_out(run: Run) -> None:
    execution = run(f"{PRELUDE}\nchannel.sendall(b'\\0\\0\\0\\x08half'); wait()", timeout_s=0.5)
    assert "timeout_s = 0.5" in execution.error


@pytest.mark.slow
def test_replies_that_nobody_reads_block_nobody(run: Run) -> None:
    code = 'for _ in range(100): say(\'{"tool": "large", "arguments": [[""], {}]}\')\nwait()'
    execution = run(f"{PRELUDE}\n{code}", tools={"large": lambda _: "x" * 500_000}, timeout_s=0.5)
    assert "timeout_s = 0.5" in execution.error


def test_a_forged_end_ends_only_the_code(run: Run) -> None:
    execution = run(
        f'{PRELUDE}\nprint("a", flush=True)\nsay(\'{{"done": true, "error": "mine"}}\')\nwait()\nprint("b")'
    )
    assert (execution.stdout, execution.error) == ("a\n", "mine")


@pytest.mark.slow
@pytest.mark.parametrize("close", ["channel.close()", "channel.shutdown(socket.SHUT_RDWR)", "os.closerange(3, 256)"])
def test_a_closed_channel_is_the_codes_own_loss(run: Run, close: str) -> None:
    execution = run(f"{PRELUDE}\n{close}\nprint('after')\n")
    assert execution.stdout == "after\n"
    assert "ended its process itself" in execution.error
    assert "timeout_s" in run(f"{PRELUDE}\n{close}\nwait()", timeout_s=0.5).error


def test_descriptors_sent_to_the_host_are_not_taken(run: Run) -> None:
    before = len(os.listdir("/proc/self/fd"))
    code = "for _ in range(50): socket.send_fds(channel, [b'\\0\\0\\0\\x02{}'], [0, 1, 2])"
    assert "no text `tool`" in run(f"{PRELUDE}\n{code}\nwait()").error
    assert len(os.listdir("/proc/self/fd")) <= before


def test_nothing_else_of_the_host_is_open(run: Run) -> None:
    code = (
        "import os, stat\n"
        "for n in range(256):\n"
        "    try: found = os.fstat(n)\n"
        "    except OSError: continue\n"
        "    is_null = found.st_rdev == os.stat('/dev/null').st_rdev\n"
        "    print('null' if is_null else 'fifo' if stat.S_ISFIFO(found.st_mode) else 'socket' if "
        "stat.S_ISSOCK(found.st_mode) else n)"
    )
    assert run(code).stdout.splitlines() == ["null", "fifo", "fifo", "socket"]


def test_the_next_execution_is_as_good_as_new(isolated: None) -> None:
    _, _, after = run_all(
        [f"{PRELUDE}\nsay('x')\nwait()", "import os; os._exit(3)", "print(shout('a'))"], session_id="s"
    )
    assert (after.stdout, after.error) == ("A\n", "")


def message(value: Any) -> bytes:
    content = json.dumps(value).encode()
    return len(content).to_bytes(4, "big") + content


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.fixed_dictionaries(
    {}, optional={"done": VALUES, "error": VALUES, "tool": VALUES | st.just("shout"), "arguments": VALUES}
)
PARTS = st.binary(max_size=50) | FIELDS.map(message) | VALUES.map(message)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(parts=st.lists(PARTS, max_size=5), max_file_bytes=st.sampled_from([0, 20]))
def test_nothing_that_the_other_end_sends_raises_anything_else(parts: list[bytes], max_file_bytes: int) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, TOOLS)
    with ours, theirs:
        theirs.sendall(b"".join(parts))
        theirs.shutdown(socket.SHUT_WR)
        ours.settimeout(5)
        try:
            error, files = channel.serve({"code": "", "limits": []}, 3, max_file_bytes)
            error.encode()
            assert len(files) <= max_file_bytes
        except (EOFError, BrokenChannel) as error:
            str(error).encode()
    assert len(channel.calls) <= 3


NAMES = st.sampled_from(["a", "b", "-rf", " ", "~", "\udcff", "x" * 200])
TREES = st.recursive(
    st.binary(max_size=9000) | st.sampled_from(["link", "pipe"]),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


def plant(tree: dict[str, Any], directory: Path) -> None:
    for name, node in tree.items():
        path = directory / name
        if isinstance(node, dict):
            path.mkdir()
            plant(node, path)
        elif node == "link":
            path.symlink_to("/etc")
        elif node == "pipe":
            os.mkfifo(path)
        else:
            path.write_bytes(node)


def contents(directory: Path) -> dict[str, Any]:
    """The tree in a directory, without what is not kept."""
    paths = [path for path in directory.iterdir() if not path.is_symlink() and (path.is_file() or path.is_dir())]
    return {path.name: contents(path) if path.is_dir() else path.read_bytes() for path in paths}


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(tree=TREES, num_bytes=st.integers(1, 30_000), num_files=st.integers(0, 12))
def test_of_any_tree_only_files_are_kept_and_no_more_than_may_be(
    tree: dict[str, Any], num_bytes: int, num_files: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        plant(tree, Path())
        try:
            packed = runner.pack(num_bytes, num_files)
        except OverflowError:
            return
        assert len(packed) <= num_bytes
        with tempfile.TemporaryDirectory() as target:
            os.chdir(target)
            runner.unpack(packed)
            assert contents(Path(target)) == contents(Path(directory))
            assert len(list(Path(target).rglob("*"))) <= num_files
