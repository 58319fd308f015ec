"""How the parts of a run meet and wait for one another: by files, and never without a word or an end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from packages.cluster.tests.helpers import joined, roster_of
from slimrl.config.deployment import Part
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.transport.roster import Roster, describe_member, drop_before, newest_version

MEMBER = """
import sys, time
from pathlib import Path
from slimrl.io.run_dir import RunDir
from slimrl_cluster.transport.roster import Roster
with Roster(RunDir(Path(sys.argv[1])), sys.argv[2], 9.0, print).reserve() as place:
    place.announce({"address": "http://there"})
    print("here", flush=True)
    time.sleep(60)
"""
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts another process that is a part of the run in `tmp_path`."""
    with ExitStack() as started:

        def start(part: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", MEMBER, str(tmp_path), part]
            process = started.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            started.callback(process.kill)
            assert process.stdout and process.stdout.readline() == "here\n"
            return process

        yield start


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[ExitStack]:
    """A trainer of the run; it leaves when this is closed."""
    with ExitStack() as held:
        held.enter_context(joined(tmp_path, "trainer"))
        yield held


def wait(roster: Roster, part: Part = "trainer", find: Callable[[], None] = lambda: None) -> None:
    roster.wait(part, "work", find)


def addresses(roster: Roster) -> dict[str, str]:
    return {name: facts["address"] for name, facts in roster.members("inference").items()}


def test_a_part_tells_the_others_what_they_need_once_it_is_ready(tmp_path: Path) -> None:
    roster = roster_of(tmp_path)
    assert roster.find("trainer") is None
    with roster_of(tmp_path, "trainer").reserve() as place:
        for text in ("", '{"pid": 1, "host": "h"'):  # while the file is being written
            (tmp_path / "transport" / "trainer.json").write_text(text)
            assert roster.find("trainer") is None
        (tmp_path / "transport" / "trainer.json").write_text("")
        place.announce({"dtype": "bfloat16"})
        found = roster.find("trainer")
        assert found and found["dtype"] == "bfloat16" and found["pid"] == str(os.getpid())
    assert roster.find("trainer") is None


@pytest.mark.slow
def test_a_part_is_there_once_and_the_record_of_a_killed_one_says_nothing(tmp_path: Path, start: Start) -> None:
    trainer, roster = start("trainer"), roster_of(tmp_path, timeout_s=2.0)
    found = roster.find("trainer")
    assert found and found["pid"] == str(trainer.pid)
    with pytest.raises(UserError, match="another process is the trainer"), joined(tmp_path, "trainer"):
        pass
    trainer.kill()
    trainer.wait()
    assert (tmp_path / "transport" / "trainer.json").read_text()  # it is left, and not believed
    ended = rf"the trainer \(process {trainer.pid} on .*\) has ended"
    assert roster.find("trainer") is None
    with pytest.raises(UserError, match=ended):
        wait(roster)
    with joined(tmp_path, "trainer"):  # its place is free, and who replaces it is another one
        with pytest.raises(UserError, match=ended):
            wait(roster)
        with pytest.raises(UserError, match="in vain"):
            wait(roster_of(tmp_path, timeout_s=0.2))


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"), joined(tmp_path / "file", "trainer"):
        pass


def test_each_sampler_has_a_place_with_a_number_and_the_first_free_one_is_taken(tmp_path: Path) -> None:
    roster, held = roster_of(tmp_path), [ExitStack() for _ in range(11)]
    for number, one in enumerate(held):
        one.enter_context(joined(tmp_path, "inference", address=str(number)))
    assert addresses(roster) == {f"inference-{number}": str(number) for number in range(11)}
    assert [*addresses(roster)][-2:] == ["inference-9", "inference-10"]
    found = roster.find("inference")
    assert found and found["address"] == "0" and describe_member(found).startswith(f"process {os.getpid()} on ")
    for one in held[2:]:
        one.close()
    held[0].close()
    with roster_of(tmp_path, "inference").reserve() as place:
        assert addresses(roster) == {"inference-1": "1"}  # the first is not ready
        place.announce({"address": "new"})
        assert addresses(roster) == {"inference-0": "new", "inference-1": "1"}
    held[1].close()
    assert roster.members("inference") == {} and roster.find("inference") is None


def test_the_place_of_a_sampler_that_was_killed_is_free(tmp_path: Path, start: Start) -> None:
    sampler, roster = start("inference"), roster_of(tmp_path, timeout_s=0.2)
    assert roster.members("inference")["inference-0"]["pid"] == str(sampler.pid)
    roster.await_part("inference")
    sampler.kill()
    sampler.wait()
    left = tmp_path / "transport" / "inference-0.json"
    assert json.loads(left.read_text())["pid"] == str(sampler.pid)  # and nobody believes it
    assert roster.members("inference") == {}
    with pytest.raises(UserError, match="in vain"):  # it has not ended the wait, because others come
        wait(roster, "inference")
    with joined(tmp_path, "inference", address="new"):
        assert addresses(roster) == {"inference-0": "new"}


def test_who_waits_for_a_part_that_dies_is_told_its_name(tmp_path: Path, trainer: ExitStack) -> None:
    roster = roster_of(tmp_path)
    roster.await_part("trainer")
    trainer.close()
    with pytest.raises(UserError, match=rf"the trainer \(process {os.getpid()} .* has not left its work"):
        wait(roster)


def test_who_waits_too_long_is_told_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slimrl_cluster.transport.roster.SAY_S", 0.05)
    notes: list[str] = []
    with pytest.raises(UserError, match=r"waited .* in vain for the orchestrator's work: .*timeout_s"):
        wait(roster_of(tmp_path, "trainer", 0.3, notes.append), "orchestrator")
    assert notes and notes[0].startswith("waiting for the orchestrator's work, for ")


def test_the_last_work_of_a_part_that_has_ended_counts(tmp_path: Path, trainer: ExitStack) -> None:
    roster, looks = roster_of(tmp_path), iter([None])
    roster.await_part("trainer")
    trainer.close()
    assert roster.wait("trainer", "work", lambda: next(looks, "there")) == "there"


@pytest.mark.slow
@pytest.mark.parametrize("ahead_s", [50.0, -3600.0, 3600.0])
@pytest.mark.parametrize("name", ["metrics.jsonl", "warmup/metrics.jsonl"])
def test_a_part_that_writes_is_waited_for_whatever_a_file_servers_clock_says(
    name: str, ahead_s: float, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)

    def add_line() -> None:
        with path.open("a") as file:
            file.write("{}\n")
        os.utime(path, (time.time() + ahead_s,) * 2)

    def add_lines() -> None:
        for _ in range(8):
            time.sleep(0.2)
            add_line()

    add_line()
    began = time.monotonic()
    with pytest.raises(UserError, match=r"in vain for the trainer's work"):
        wait(roster_of(tmp_path, timeout_s=0.4))
    assert time.monotonic() - began < 5
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        pool.submit(add_lines)
        with pytest.raises(UserError, match="it has written nothing"):
            wait(roster_of(tmp_path, timeout_s=0.8))
    assert time.monotonic() - began > 1.6


def test_a_batch_that_vanishes_while_it_is_looked_at_is_no_sign_and_no_error(tmp_path: Path) -> None:
    path = RunDir(tmp_path).batch_of(7)
    path.parent.mkdir(parents=True)
    path.symlink_to("deleted")
    with pytest.raises(UserError, match=r"in vain for the orchestrator's work"):
        wait(roster_of(tmp_path, "trainer", 0.2), "orchestrator")


def test_batches_and_weights_of_the_past_are_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert newest_version(run) == -1
    run.batches.mkdir(parents=True)
    for step in (0, 1, 10):
        run.batch_of(step).touch()
        run.sent_weights_of(step).mkdir(parents=True)
    (run.sent_weights / ".step_11.tmp-1").mkdir()  # being written
    assert newest_version(run) == 10
    drop_before(run.batches, 10)
    drop_before(run.sent_weights, 1)
    assert [path.name for path in run.batches.iterdir()] == ["step_10.json"]
    assert not run.sent_weights_of(0).exists() and run.sent_weights_of(1).exists()
