"""How the parts of a run find one another and wait: by files, and never without a word or an end."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.transport.base import Batch
from slimrl.types import Sample
from slimrl_cluster.transport.roster import Roster
from slimrl_cluster.transport.run_files import RunFiles

BATCH = Batch((Sample((1, 2), (False, True), (0.0, -0.5), (0.0, 1.0), 0),), 1.0)
MEMBER = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from slimrl_cluster.transport.roster import Roster
with Roster(Path(sys.argv[1])).join("trainer", {"dtype": "float32"}):
    print("here", flush=True)
    time.sleep(60)
"""


def files_of(directory: Path, timeout_s: float = 20.0, notes: list[str] | None = None) -> RunFiles:
    return RunFiles(
        directory, timeout_s, (notes if notes is not None else []).append, Roster(directory), "orchestrator"
    )


@pytest.fixture
def trainer(tmp_path):
    """Another process that is the trainer of the run in `tmp_path`."""
    with subprocess.Popen([sys.executable, "-c", MEMBER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "here\n"
        yield process
        process.kill()


def test_a_part_tells_the_others_what_they_need(tmp_path):
    roster = Roster(tmp_path)
    assert roster.find("trainer") is None
    with Roster(tmp_path).reserve("trainer") as entry:
        assert roster.find("trainer") is None  # it is there, but not ready
        Roster(tmp_path).announce(entry, {"dtype": "bfloat16"})
        found = roster.find("trainer")
        assert found and found["dtype"] == "bfloat16" and found["pid"] == str(os.getpid())
    assert roster.find("trainer") is None


@pytest.mark.slow
def test_a_part_of_another_process_is_found_and_is_there_once(tmp_path, trainer):
    found = Roster(tmp_path).find("trainer")
    assert found and found["pid"] == str(trainer.pid)
    with pytest.raises(UserError, match="another process is the trainer"), Roster(tmp_path).join("trainer", {}):
        pass


def test_the_record_of_a_killed_part_says_nothing(tmp_path, trainer):
    roster = Roster(tmp_path)
    assert roster.find("trainer") and not roster.describe_end("trainer")
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    assert (tmp_path / "transport" / "trainer.json").read_text()  # it is left, and not believed
    assert roster.find("trainer") is None
    assert str(trainer.pid) in roster.describe_end("trainer")
    with roster.join("trainer", {"dtype": "float32"}):  # and its place is free
        assert roster.find("trainer")


@pytest.mark.slow
def test_who_waits_for_a_part_that_dies_is_told_its_name(tmp_path, trainer):
    files = files_of(tmp_path)
    files.await_part("trainer")
    trainer.kill()
    trainer.wait()
    with pytest.raises(UserError, match=rf"the trainer \(process {trainer.pid} .* weights of version 3"):
        files.await_weights(3)


def test_who_waits_too_long_is_told_for_whom(tmp_path):
    notes: list[str] = []
    with pytest.raises(UserError, match=r"waited .* in vain for the orchestrator's batch of step 0: .*timeout_s"):
        files_of(tmp_path, 0.2, notes).receive(0)


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [50.0, -3600.0, 3600.0])
def test_a_file_servers_clock_that_differs_makes_no_wait_longer_or_shorter(tmp_path, ahead_s):
    path = tmp_path / "metrics.jsonl"
    path.write_text("{}\n")
    os.utime(path, (time.time() + ahead_s,) * 2)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"in vain for the trainer's weights of version 1"):
        files_of(tmp_path, 0.4).await_weights(1)
    assert time.monotonic() - began < 5

    def add_lines():
        for _ in range(8):
            time.sleep(0.2)
            with path.open("a") as file:
                file.write("{}\n")
            os.utime(path, (time.time() + ahead_s,) * 2)

    with ThreadPoolExecutor() as pool:  # as long as it writes, it is waited for
        began = time.monotonic()
        pool.submit(add_lines)
        with pytest.raises(UserError):
            files_of(tmp_path, 0.8).await_weights(1)
    assert time.monotonic() - began > 1.6


def test_a_batch_that_vanishes_while_it_is_looked_at_is_no_sign_and_no_error(tmp_path):
    path = files_of(tmp_path).batch_path(7)
    path.parent.mkdir(parents=True)
    path.symlink_to("deleted")
    with pytest.raises(UserError, match=r"in vain for the orchestrator's batch of step 0"):
        files_of(tmp_path, 0.2).receive(0)


def test_a_long_wait_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("slimrl_cluster.transport.run_files.SAY_S", 0.05)
    notes: list[str] = []
    with pytest.raises(UserError):
        files_of(tmp_path, 0.3, notes).receive(0)
    assert notes and notes[0].startswith("waiting for the orchestrator's batch of step 0")


def test_the_last_work_of_a_part_that_has_ended_counts(tmp_path, trainer):
    files = files_of(tmp_path)
    files.await_part("trainer")
    trainer.kill()
    trainer.wait()
    files.weights_path(0).mkdir(parents=True)
    assert files.await_weights(0) == files.weights_path(0)


def test_batches_and_weights_of_the_past_are_dropped(tmp_path):
    files = files_of(tmp_path)
    for step in (0, 1, 10):
        files.send(step, BATCH)
        files.weights_path(step).mkdir(parents=True)
    (files.weights_path(0).parent / ".step_11.tmp-1").mkdir()  # being written
    assert files.newest_version() == 10 and files.receive(1) == BATCH
    files.drop_batches_before(10)
    files.drop_weights_before(1)
    assert [path.name for path in files.batch_path(0).parent.iterdir()] == ["step_10.safetensors"]
    assert not files.weights_path(0).exists() and files.weights_path(1).exists()
    files.clear()
    assert files.newest_version() == -1


def test_a_part_that_was_replaced_is_one_that_has_ended(tmp_path, trainer):
    roster = Roster(tmp_path)
    assert roster.find("trainer")
    trainer.kill()
    trainer.wait()
    with Roster(tmp_path).join("trainer", {}):
        assert roster.find("trainer") and str(trainer.pid) in roster.describe_end("trainer")
        assert not Roster(tmp_path).describe_end("trainer")


@pytest.mark.slow
def test_a_part_that_writes_its_metrics_is_waited_for(tmp_path):
    files = files_of(tmp_path, 0.4)
    (tmp_path / "warmup").mkdir()
    metrics, began = tmp_path / "warmup" / "metrics.jsonl", time.monotonic()

    def find() -> None:
        if time.monotonic() - began < 1.0:
            metrics.touch()

    with pytest.raises(UserError, match="it has written nothing"):
        files.wait("trainer", "weights of version 0", find)
    assert time.monotonic() - began > 1.2


def test_who_looks_keeps_nobody_from_taking_part(tmp_path):
    with Roster(tmp_path).join("trainer", {}):
        pass
    stopped = threading.Event()

    def look() -> None:
        while not stopped.is_set():
            Roster(tmp_path).find("trainer")

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            with Roster(tmp_path).join("trainer", {}):
                pass
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"), Roster(tmp_path / "file").join("trainer", {}):
        pass
