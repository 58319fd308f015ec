"""Who waits for a lock is told for whom, and does not wait for a process that is stopped."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from slimrl.errors import UserError
from slimrl.io.locks import hold_lock, holder_of
from slimrl.io.process_tree import is_stopped

HOLDER = """
import sys, time
from pathlib import Path
from slimrl.io.locks import hold_lock
with hold_lock(Path(sys.argv[1]), "building", print):
    print("here", flush=True)
    time.sleep(60)
"""
NEEDS_PROC = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the holder of a lock has no name")


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "lock"], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    yield process
    process.kill()
    process.communicate()


@NEEDS_PROC
def test_the_holder_is_named_and_its_death_ends_the_wait(tmp_path, holder):
    assert holder_of(tmp_path / "lock") == holder.pid and not is_stopped(holder.pid)
    notes = []
    threading.Timer(0.5, holder.kill).start()
    began = time.monotonic()
    with hold_lock(tmp_path / "lock", "building", notes.append):
        assert time.monotonic() - began < 5
        assert holder_of(tmp_path / "lock") == os.getpid()
    assert notes == [f"waiting for process {holder.pid}, which is building, for 0 s so far"]
    assert holder_of(tmp_path / "lock") == holder_of(tmp_path / "no such file") == 0


@pytest.mark.slow
@NEEDS_PROC
def test_a_holder_that_is_stopped_is_not_waited_for(tmp_path, holder, monkeypatch):
    monkeypatch.setattr("slimrl.io.locks.STOPPED_S", 0.5)
    holder.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    stopped = rf"process {holder.pid}, which is building, is stopped.*kill -CONT {holder.pid}"
    with pytest.raises(UserError, match=stopped), hold_lock(tmp_path / "lock", "building", print):
        pass
    assert time.monotonic() - began < 5
    holder.send_signal(signal.SIGCONT)
    threading.Timer(0.6, holder.kill).start()  # one that goes on is waited for
    with hold_lock(tmp_path / "lock", "building", print):
        pass


@pytest.mark.slow
def test_a_wait_goes_on_being_noted(tmp_path, holder, monkeypatch):
    monkeypatch.setattr("slimrl.io.locks.NOTICE_S", 0.3)
    notes = []
    threading.Timer(1.5, holder.kill).start()
    with hold_lock(tmp_path / "lock", "building", notes.append):
        assert len(notes) > 1 and "so far" in notes[-1]
