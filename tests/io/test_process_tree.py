"""Real processes and their children: who belongs together, and how they end."""

import _thread
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slimrl.io import process_tree as module
from slimrl.io.process_tree import Process, end, find_marked, find_process_tree, processes, start_time

pytestmark = pytest.mark.slow

SLEEP = "import time; print(flush=True); time.sleep(100)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
# Starts another, in a session of its own if asked to, and tells its number.
PARENT = """
import subprocess, sys, time
how = {"stdout": subprocess.PIPE, "start_new_session": len(sys.argv) > 2}
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], **how)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(100)
"""


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Python with these arguments, in a session of its own, and the first line that it has said."""
    command = [sys.executable, "-c", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        yield process, said
        process.kill()


@pytest.mark.parametrize("own_session", [[], ["own session"]])
def test_children_end_with_their_parent(own_session: list[str]):
    with running(PARENT, SLEEP, *own_session) as (parent, said):
        known = {parent.pid: start_time(parent.pid)}
        assert set(find_process_tree(known)) == {parent.pid, int(said)}
        assert end(known, 20.0) == ([], [])
        assert not start_time(int(said)) and find_process_tree(known) == {}


@pytest.mark.parametrize("own_session", [[], ["own session"]])
def test_a_child_that_heeds_no_signal_is_killed_after_a_while(own_session: list[str]):
    with running(PARENT, DEAF, *own_session) as (parent, said):
        assert end({parent.pid: start_time(parent.pid)}, 0.3) == ([int(said)], [])
        assert not start_time(int(said)) and not start_time(parent.pid)


def test_children_are_known_by_the_group_of_a_parent_that_nobody_has_waited_for():
    with running(PARENT, SLEEP) as (parent, said):
        known = {parent.pid: start_time(parent.pid)}
        parent.send_signal(signal.SIGKILL)
        while start_time(parent.pid):
            time.sleep(0.01)
        assert set(find_process_tree(known)) == {int(said)}
        assert end(known, 20.0) == ([], []) and not start_time(int(said))


def test_processes_that_may_not_be_read_are_passed_over(monkeypatch: pytest.MonkeyPatch):
    read = Path.read_text

    def refuse(path: Path, **how: str) -> str:
        if path == Path("/proc/1/stat"):  # as with `hidepid=1`
            raise PermissionError
        return read(path, **how)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert os.getpid() in processes() and 1 not in processes()


def test_processes_are_found_by_what_they_were_started_with(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARK_OF_A_TEST", "17")
    with running(PARENT, SLEEP, "own session") as (parent, said):
        assert set(find_marked("MARK_OF_A_TEST", "17")) == {parent.pid, int(said)}
        assert find_marked("MARK_OF_A_TEST", "1") == {}
        end({parent.pid: start_time(parent.pid)}, 20.0)


def test_a_number_that_is_now_anothers_is_left_alone():
    with running(PARENT, SLEEP) as (other, said):
        assert find_process_tree({other.pid: "12345"}) == {}
        assert end({other.pid: "12345"}, 1.0) == ([], [])
        assert start_time(other.pid) and start_time(int(said))
        end({other.pid: start_time(other.pid)}, 20.0)


def test_an_interrupt_ends_the_patience():
    with running(DEAF) as (deaf, _):
        threading.Timer(0.3, _thread.interrupt_main).start()
        assert end({deaf.pid: start_time(deaf.pid)}, 1000.0) == ([deaf.pid], [])
        assert not start_time(deaf.pid)


@pytest.mark.skipif(not shutil.which("ps"), reason="there is no ps")
def test_without_proc_ps_tells_the_same(monkeypatch, tmp_path):
    with running(PARENT, SLEEP) as (parent, said):
        there = processes()[int(said)]
        monkeypatch.setattr(module, "PROC", tmp_path)
        told = processes()[int(said)]
        assert told == Process(parent.pid, parent.pid, told.began, ended=False)
        assert (told.parent, told.group) == (there.parent, there.group)
        assert told.began and start_time(int(said)) == told.began and processes(2**22 + 1) == {}
        assert set(find_process_tree({parent.pid: start_time(parent.pid)})) == {parent.pid, int(said)}
        assert processes()[os.getpid()].parent == os.getppid()
        end({parent.pid: start_time(parent.pid)}, 20.0)
