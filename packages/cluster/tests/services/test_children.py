"""Child processes end with their parent, and leave their last words."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from packages.cluster.tests.helpers import wait_until
from slimrl.errors import UserError
from slimrl.io.process_tree import start_time
from slimrl_cluster.services.children import Child, Children
from slimrl_cluster.services.programs import ADDRESS, Needs

PARENT = """
import sys, time
from pathlib import Path
from slimrl.errors import UserError
from slimrl_cluster.services.children import Children
with Children(Path(sys.argv[1])) as children:
    print(children.start("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
    time.sleep(60)
"""
FAMILY = """
import subprocess, time
p = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(p.pid, flush=True)
time.sleep(60)
"""


def ended(children: Children, program: str, **environment: str) -> Child:
    """A child that runs a program, after its end."""
    child = children.start("talker", [sys.executable, "-c", program], environment=environment)
    wait_until(lambda: child.end)
    return child


def first_lines(child: Child) -> list[str]:
    lines: list[str] = []
    wait_until(lambda: lines.extend(child.new_lines()) or lines)
    return lines


def test_what_a_child_says_goes_to_its_log_and_is_given_once_also_after_another_start(tmp_path: Path) -> None:
    with Children(tmp_path / "logs") as children:
        child = ended(children, "import os; print('a'); print(os.environ['X'])", X="b")
        assert child.new_lines() == ["a", "b"] and child.new_lines() == []
        assert ended(children, "print('c')").new_lines() == ["c"]
    assert (tmp_path / "logs" / "talker.log").read_text() == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("program", "how", "is_good", "has_refused"),
    [
        ("", "status 0", True, False),
        ("raise SystemExit(2)", "status 2", False, True),
        ("raise SystemExit(3)", "status 3", False, False),
        ("import os; os.abort()", "SIGABRT", False, False),
    ],
)
def test_how_a_child_has_ended(program: str, how: str, is_good: bool, has_refused: bool, tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = ended(children, program)
    end = child.end
    assert end and (end.is_good, end.has_refused) == (is_good, has_refused)
    assert how in end.text and f"process {child.pid})" in end.text and str(child.log) in end.text


def test_a_child_is_given_this_machines_address_and_what_it_is_stopped_with_is_its_end(tmp_path: Path) -> None:
    program = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)"
    with Children(tmp_path) as children:
        child = children.start("told", [sys.executable, "-c", program, "--host", ADDRESS], Needs(3.0, 8))
        assert first_lines(child) == ["['--host', '127.0.0.1']"] and child.end is None
        assert child.process == str(child.pid)
        child.stop()
        assert child.end and "SIGTERM" in child.end.text and not start_time(child.pid)
        child.stop()  # a second time does nothing


@pytest.mark.parametrize("is_killed", [False, True])
def test_children_end_with_the_block_and_their_descendants_too(is_killed: bool, tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("family", [sys.executable, "-c", FAMILY])
        [pid] = map(int, first_lines(child))
        if is_killed:
            os.kill(child.pid, signal.SIGKILL)
            wait_until(lambda: child.end)
            assert start_time(pid)
    assert child.end
    wait_until(lambda: not start_time(pid))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent_however_it_ends(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert start_time(pid)
        os.kill(parent.pid, number)
    wait_until(lambda: not start_time(pid))


def test_logs_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"), Children(tmp_path / "file" / "logs") as children:
        children.start("talker", [sys.executable, "-c", ""])
