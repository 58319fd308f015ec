"""Code that speaks to the host itself, over the socket that its tools use. All it can get is an error of its own."""

import json
import os
import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packages.sandbox.tests.conftest import TOOLS, Run
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
    calls: list[str] = []
    execution = run("while True: count('x')", tools={"count": lambda text: calls.append(text)}, num_calls=7)
    assert "more than num_calls = 7" in execution.error and len(calls) == 7
    assert run("for _ in range(7): shout('x')", num_calls=7).error == ""


REPLIES = 'for _ in range(100): say(\'{"tool": "large", "arguments": [[""], {}]}\')\nwait()'


@pytest.mark.slow
@pytest.mark.parametrize("code", ["channel.sendall(b'\\0\\0\\0\\x08half'); wait()", REPLIES])
def test_half_a_message_and_replies_that_nobody_reads_wait_no_longer_than_the_time_out(run: Run, code: str) -> None:
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
