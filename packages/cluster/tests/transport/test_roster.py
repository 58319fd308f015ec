"""The members of a run: each kind has its places, the first free one is taken, and a dead process holds none."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl_cluster.transport.roster import Roster, describe_member

MEMBER = """
import sys, time
from pathlib import Path
from slimrl_cluster.transport.roster import Roster
with Roster(Path(sys.argv[1])).join(sys.argv[2], {"address": "http://there"}):
    print("here", flush=True)
    time.sleep(60)
"""
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts another process that is a part of the run in `tmp_path`."""
    started: list[subprocess.Popen[str]] = []

    def start(part: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MEMBER, str(tmp_path), part]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        output = started[-1].stdout
        assert output and output.readline() == "here\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_part_tells_the_others_what_they_need_once_it_is_ready(tmp_path: Path) -> None:
    roster = Roster(tmp_path)
    assert roster.find("trainer") is None
    with Roster(tmp_path).reserve("trainer") as place:
        assert roster.find("trainer") is None  # it is there, but not ready
        place.announce({"dtype": "bfloat16"})
        found = roster.find("trainer")
        assert found and found["dtype"] == "bfloat16" and found["pid"] == str(os.getpid())
    assert roster.find("trainer") is None


@pytest.mark.parametrize("text", ["", '{"pid": 1, "host": "h"'])
def test_a_file_that_is_being_written_is_not_read(text: str, tmp_path: Path) -> None:
    with Roster(tmp_path).reserve("trainer"):
        (tmp_path / "transport" / "trainer.json").write_text(text)
        assert Roster(tmp_path).find("trainer") is None


@pytest.mark.slow
def test_a_part_is_there_once_and_the_record_of_a_killed_one_says_nothing(tmp_path: Path, start: Start) -> None:
    trainer, roster = start("trainer"), Roster(tmp_path)
    found = roster.find("trainer")
    assert found and found["pid"] == str(trainer.pid) and not roster.describe_end("trainer")
    with pytest.raises(UserError, match="another process is the trainer"), Roster(tmp_path).join("trainer", {}):
        pass
    trainer.kill()
    trainer.wait()
    assert (tmp_path / "transport" / "trainer.json").read_text()  # it is left, and not believed
    assert roster.find("trainer") is None and str(trainer.pid) in roster.describe_end("trainer")
    with Roster(tmp_path).join("trainer", {}):  # its place is free, and who replaces it is another one
        assert roster.find("trainer") and str(trainer.pid) in roster.describe_end("trainer")
        assert not Roster(tmp_path).describe_end("trainer")


def test_who_looks_keeps_nobody_from_taking_part(tmp_path: Path) -> None:
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


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written"), Roster(tmp_path / "file").join("trainer", {}):
        pass


@pytest.mark.nightly
def test_each_sampler_has_a_place_with_a_number(tmp_path: Path) -> None:
    roster = Roster(tmp_path)
    with ExitStack() as held:
        for number in range(11):
            held.enter_context(Roster(tmp_path).join("inference", {"address": f"http://{number}"}))
        found = roster.members("inference")
        assert list(found) == [f"inference-{number}" for number in range(11)]  # 10 after 9
        assert [facts["address"] for facts in found.values()] == [f"http://{number}" for number in range(11)]
        assert roster.find("inference") == found["inference-0"]
        assert describe_member(found["inference-3"]).startswith(f"process {os.getpid()} on ")
    assert roster.members("inference") == {} and roster.find("inference") is None


def test_the_first_free_place_is_taken_and_shown_when_its_sampler_is_ready(tmp_path: Path) -> None:
    roster, first = Roster(tmp_path), ExitStack()
    place = first.enter_context(Roster(tmp_path).reserve("inference"))
    with Roster(tmp_path).join("inference", {"address": "b"}):
        assert list(roster.members("inference")) == ["inference-1"]
        place.announce({"address": "a"})
        assert list(roster.members("inference")) == ["inference-0", "inference-1"]
        first.close()
        assert list(roster.members("inference")) == ["inference-1"]
        with Roster(tmp_path).join("inference", {"address": "c"}):
            found = roster.members("inference")
            assert {name: facts["address"] for name, facts in found.items()} == {"inference-0": "c", "inference-1": "b"}


def test_the_place_of_a_sampler_that_was_killed_is_free(tmp_path: Path, start: Start) -> None:
    sampler, roster = start("inference"), Roster(tmp_path)
    assert roster.members("inference")["inference-0"]["pid"] == str(sampler.pid)
    sampler.kill()
    sampler.wait()
    left = tmp_path / "transport" / "inference-0.json"
    assert json.loads(left.read_text())["pid"] == str(sampler.pid)  # and nobody believes it
    assert roster.members("inference") == {} and roster.describe_end("inference") == ""  # others come
    with Roster(tmp_path).join("inference", {"address": "new"}):
        assert roster.members("inference")["inference-0"]["address"] == "new"


def test_samplers_that_come_at_once_have_places_of_their_own(tmp_path: Path) -> None:
    together, free = threading.Barrier(6), threading.Event()

    def come(number: int) -> None:
        together.wait()
        with Roster(tmp_path).join("inference", {"address": str(number)}):
            together.wait()
            free.wait(20)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    together.wait()
    together.wait(20)
    found = Roster(tmp_path).members("inference")
    free.set()
    for thread in threads:
        thread.join()
    assert sorted(facts["address"] for facts in found.values()) == [str(number) for number in range(5)]
