"""Child processes end with their parent, and leave their last words."""

import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from slimrl.errors import UserError
from slimrl.io.process_tree import start_time
from slimrl_cluster.services.children import Children
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


def await_status(child, seconds: float = 10.0) -> int | None:
    deadline = time.monotonic() + seconds
    while child.status is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return child.status


def await_gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while start_time(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not start_time(pid)


def test_what_a_child_says_goes_to_its_log_and_is_given_once(tmp_path):
    with Children(tmp_path / "logs") as children:
        child = children.start(
            "talker",
            [sys.executable, "-c", "import os; print('a'); print(os.environ['X'])"],
            environment={"X": "b"},
        )
        assert await_status(child) == 0
        assert child.new_lines() == ["a", "b"] and child.new_lines() == []
    assert (tmp_path / "logs" / "talker.log").read_text() == "a\nb\n"


def test_a_child_that_is_started_again_goes_on_in_its_log(tmp_path):
    with Children(tmp_path) as children:
        for word in ("first", "second"):
            child = children.start("talker", [sys.executable, "-c", f"print('{word}')"])
            await_status(child)
        assert child.new_lines() == ["second"]
    assert (tmp_path / "talker.log").read_text() == "first\nsecond\n"


@pytest.mark.parametrize(
    ("program", "how"), [("raise SystemExit(3)", "status 3"), ("import os; os.abort()", "SIGABRT")]
)
def test_how_a_child_has_ended(program, how, tmp_path):
    with Children(tmp_path) as children:
        child = children.start("failing", [sys.executable, "-c", program])
        await_status(child)
        assert child.end and not child.end.is_good and not child.end.has_refused
        assert how in child.end.text and f"process {child.pid})" in child.end.text and str(child.log) in child.end.text


def test_a_child_that_refuses_is_told_from_one_that_fails(tmp_path):
    with Children(tmp_path) as children:
        child = children.start("refusing", [sys.executable, "-c", "raise SystemExit(2)"])
        await_status(child)
        assert child.end and child.end.has_refused
        well = children.start("good", [sys.executable, "-c", ""])
        await_status(well)
        assert well.end and well.end.is_good


def test_a_child_is_given_this_machines_address_and_what_it_is_stopped_with_is_its_end(tmp_path):
    program = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(60)"
    with Children(tmp_path) as children:
        child = children.start("told", [sys.executable, "-c", program, "--host", ADDRESS], Needs(3.0, 8))
        while not (lines := child.new_lines()):
            time.sleep(0.02)
        assert lines == ["['--host', '127.0.0.1']"] and child.end is None
        assert child.members == [(platform.node(), child.pid)] and child.process == str(child.pid)
        child.stop()
        assert child.end and "SIGTERM" in child.end.text and not start_time(child.pid)
        child.stop()  # a second time does nothing


def test_children_end_with_the_block_and_their_descendants_too(tmp_path):
    program = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with Children(tmp_path) as children:
        child = children.start("family", [sys.executable, "-c", program])
        while not (lines := child.new_lines()):
            time.sleep(0.02)
    assert child.status and await_gone(int(lines[0]))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent_however_it_ends(number, tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert start_time(pid)
        os.kill(parent.pid, number)
    assert await_gone(pid)


def test_descendants_of_a_child_that_was_killed_end_too(tmp_path):
    program = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '60'], start_new_session=True); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with Children(tmp_path) as children:
        child = children.start("family", [sys.executable, "-c", program])
        while not (lines := child.new_lines()):
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)
        await_status(child)
        assert start_time(int(lines[0]))
    assert await_gone(int(lines[0]))


def test_logs_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"), Children(tmp_path / "file" / "logs") as children:
        children.start("talker", [sys.executable, "-c", ""])
