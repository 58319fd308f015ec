"""The places of several samplers of one run: the first free one is taken, and a dead process holds none."""

import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest

from slimrl_cluster.transport.roster import Roster, _lock_within, describe_member

MEMBER = """
import sys, time
from pathlib import Path
from slimrl_cluster.transport.roster import Roster
with Roster(Path(sys.argv[1])).join("inference", {"address": "http://there"}):
    print("here", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def sampler(tmp_path):
    """Another process that is the run's first sampler."""
    with subprocess.Popen([sys.executable, "-c", MEMBER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "here\n"
        yield process
        process.kill()


@pytest.mark.nightly
def test_each_sampler_has_a_place_with_a_number(tmp_path):
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


def test_a_place_that_is_free_again_is_taken_first(tmp_path):
    roster, first = Roster(tmp_path), ExitStack()
    first.enter_context(Roster(tmp_path).join("inference", {"address": "a"}))
    with Roster(tmp_path).join("inference", {"address": "b"}):
        first.close()
        assert list(roster.members("inference")) == ["inference-1"]
        with Roster(tmp_path).join("inference", {"address": "c"}):
            found = roster.members("inference")
            assert {name: facts["address"] for name, facts in found.items()} == {"inference-0": "c", "inference-1": "b"}


def test_a_sampler_that_is_not_ready_holds_its_place_and_is_not_shown(tmp_path):
    roster = Roster(tmp_path)
    with Roster(tmp_path).reserve("inference") as file, Roster(tmp_path).join("inference", {"address": "b"}):
        assert list(roster.members("inference")) == ["inference-1"]
        roster.announce(file, {"address": "a"})
        assert list(roster.members("inference")) == ["inference-0", "inference-1"]


def test_the_place_of_a_process_that_was_killed_is_free(tmp_path, sampler):
    roster = Roster(tmp_path)
    assert roster.members("inference")["inference-0"]["pid"] == str(sampler.pid)
    sampler.kill()
    sampler.wait()
    left = tmp_path / "transport" / "inference-0.json"
    assert json.loads(left.read_text())["pid"] == sampler.pid  # and nobody believes it
    assert roster.members("inference") == {}
    assert roster.describe_end("inference") == ""  # others come
    with Roster(tmp_path).join("inference", {"address": "new"}):
        assert roster.members("inference")["inference-0"]["address"] == "new"


def test_a_place_that_is_struck_is_not_believed_though_its_lock_is_held(tmp_path, sampler):
    roster = Roster(tmp_path)
    roster.strike("inference-0")
    roster.strike("inference-0")
    assert roster.members("inference") == {} and sampler.poll() is None
    with Roster(tmp_path).join("inference", {"address": "new"}):
        assert roster.members("inference")["inference-0"]["address"] == "new"


def test_who_takes_a_place_while_it_is_struck_is_seen_at_another(tmp_path, monkeypatch):
    roster, struck = Roster(tmp_path), []

    def lock_late(file, seconds):
        if not struck:
            struck.append("inference-0")
            roster.strike("inference-0")
        return _lock_within(file, seconds)

    monkeypatch.setattr("slimrl_cluster.transport.roster._lock_within", lock_late)
    with Roster(tmp_path).join("inference", {"address": "a"}):
        assert list(roster.members("inference")) == ["inference-1"]


def test_samplers_that_come_at_once_have_places_of_their_own(tmp_path):
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


@pytest.mark.parametrize("text", ["", '{"pid": 1, "host": "h"'])
def test_a_holder_that_does_not_say_who_it_is_is_not_shown(tmp_path, text):
    with Roster(tmp_path).reserve("trainer") as file:
        (tmp_path / "transport" / "trainer.json").write_text(text, encoding="latin-1")
        assert Roster(tmp_path).find("trainer") is None
        file.truncate(0)
        Roster(tmp_path).announce(file, {})
        assert Roster(tmp_path).find("trainer") is not None
