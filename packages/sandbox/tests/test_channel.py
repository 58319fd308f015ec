"""Code that speaks to the host itself, over the socket that its tools use. All it can get is an error of its own."""

import pytest

from packages.sandbox.tests.conftest import Run, run_all

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
        ('say(\'{"tool": "shout"}\'); wait()', "no text `argument`"),
        ('say(\'{"tool": "shout", "argument": 3}\'); wait()', "no text `argument`"),
        ('say(\'{"tool": "__import__", "argument": "os"}\'); wait()', "a tool that there is not: '__import__'"),
        ('say(\'{"tool": "\\\\ud800", "argument": "os"}\'); wait()', "a tool that there is not: '\\?'"),
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
    execution = run("while True: count('x')", tools={"count": calls.append}, num_calls=7)
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
    code = 'for _ in range(100): say(\'{"tool": "large", "argument": ""}\')\nwait()'
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
    import os

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
