"""The index follows the files of a run, and survives what may become of them and of itself."""

import dataclasses
import json
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from packages.view.tests.made import indexed, line_of, make_run, opened, record_of, refresh, write_held_out, write_step
from packages.view.tests.test_lines import TOO_LARGE
from slimrl.monitor.rollouts import rollout_to_json
from slimrl_view.api import to_json
from slimrl_view.index import connect, index_path, update
from slimrl_view.queries import Selection
from slimrl_view.shown import bring_up_to_date, keep_indexed

A, B, C = (line_of(record_of(task)) for task in "abc")
DAMAGED = B.replace(b'"task_id": "b"', b'"task_id": "B"')
LATE = dataclasses.replace(record_of("b"), text="other words")


def tasks(run, file="train"):
    return [row["task"] for row in run.index.rollouts(Selection(limit=5000, file=file))["rows"]]


def num_rollouts(run):
    return run.index.counts()["rollouts"]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        (A, A + B, "ab", 0),
        (A + B[:200], A + B, "ab", 0),  # an incomplete line waits for its end
        (A + B[:-1], A + B[:-1], "a", 0),
        (b"", A, "a", 0),
        (A + B, C, "c", 0),  # shorter
        (C, A + B + A, "aba", 0),  # longer
        (A + B, A + line_of(LATE), "ab", 0),  # the index keeps what is new
        (A + B, B + B, "bb", 0),  # of the same size, and the same at its end
        (A, b"", "", 0),
        (A, A + DAMAGED + C + b"\n\xff\n{}\n", "ac", 4),
        (A, A + line_of(record_of("d", "long " * 400)) + B, "adb", 0),
    ],
)
def test_the_index_follows_a_file(tmp_path, case, anew):
    before, after, found, damaged = case
    path = tmp_path / "rollouts" / "step_000003.jsonl"
    path.parent.mkdir()
    path.write_bytes(before)
    run = indexed(tmp_path)
    if anew:
        path.rename(tmp_path / "kept")  # so that its inode is not used again
        path.write_bytes(after)
    else:
        with path.open("r+b") as file:
            file.truncate(len(after))
            file.write(after)
    refresh(run)
    rows = run.index.rollouts(Selection())["rows"]
    assert [row["task"] for row in rows] == [*found]
    assert run.index.counts() == {"rollouts": len(found), "held_out": 0, "damaged": damaged}
    for row in rows:
        place = run.index.place(row["key"])
        line = after[place.begin :][: place.size]
        assert json.loads(line)["task_id"] == row["task"] and line + b"\n" in after
    word = '[{"field": "text", "op": "has", "value": "OTHER"}]'
    assert run.index.rollouts(Selection(word))["matched"] == after.count(b"other")


def test_a_file_that_is_the_same_is_not_read_again(tmp_path):
    write_step(tmp_path, 3, [record_of("a")])
    run = indexed(tmp_path)
    with connect(run.index.path) as connection:
        connection.execute("UPDATE rollouts SET reward = 7")
    write_step(tmp_path, 4, [record_of("b")])
    refresh(run)
    assert [row["reward"] for row in run.index.rollouts(Selection())["rows"]] == [7, 0.5]


def test_a_file_that_is_gone_is_forgotten(tmp_path):
    write_step(tmp_path, 0, [record_of("a")])
    path = write_step(tmp_path, 1, [record_of("b")])
    run = indexed(tmp_path)
    path.unlink()
    refresh(run)
    assert tasks(run) == ["a"]
    with connect(run.index.path) as connection:
        for table in ("files", "texts", "groups"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 1


@pytest.mark.parametrize("change", TOO_LARGE)
def test_a_number_that_is_too_large_costs_its_line_alone(tmp_path, change):
    path = write_step(tmp_path, 0, [record_of("a"), record_of("c")])
    with path.open("ab") as file:
        file.write(json.dumps(rollout_to_json(record_of("b")) | change).encode() + b"\n" + A)
    run = indexed(tmp_path)
    assert tasks(run) == ["a", "c", "a"]
    assert run.index.counts()["damaged"] == 1


def test_rewards_whose_sum_is_too_large_have_no_mean(tmp_path):
    write_step(tmp_path, 0, [record_of("a", reward=1e308), record_of("a", reward=1.7e308)])
    [group] = to_json(indexed(tmp_path).index.groups(Selection())["groups"])
    assert (group["mean"], group["std"], group["min"], group["max"]) == (None, None, int(1e308), int(1.7e308))


def test_what_is_wrong_with_one_run_is_noted_and_the_others_are_read(tmp_path):
    bad, good = (make_run(tmp_path / name) for name in ("bad", "good"))
    runs = [opened(bad), opened(good)]
    strange = write_held_out(bad, "x", [record_of("a")])
    strange.rename(strange.with_name("x\udcff.jsonl"))  # the index has no place for half of a character
    with keep_indexed(runs, poll_s=0.01):
        wait_for(lambda: runs[0].problem)
        write_step(good, 2, [record_of("new")])
        wait_for(lambda: "new" in tasks(runs[1]))
        assert "UnicodeEncodeError" in runs[0].problem and runs[1].problem == ""
        strange.with_name("x\udcff.jsonl").unlink()
        wait_for(lambda: runs[0].problem == "" and num_rollouts(runs[0]) == 8)


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen within ten seconds"
        time.sleep(0.01)


def test_a_group_without_a_signal_is_one_as_a_whole(tmp_path):
    flat = [record_of("flat", advantage=0.0) for _ in range(3)]
    mixed = [record_of("mixed", advantage=advantage) for advantage in (0.0, 0.0, 0.5)]
    trained = [dataclasses.replace(record_of("valued", advantage=0.0), has_signal=True) for _ in range(3)]
    write_step(tmp_path, 0, flat + mixed + trained)
    run = indexed(tmp_path)
    rows = run.index.rollouts(Selection())["rows"]
    assert [row["zero_signal"] for row in rows] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert [group["zero_signal"] for group in run.index.groups(Selection(sort="task"))["groups"]] == [1, 0, 0]


def test_a_pass_that_is_stopped_is_completed_by_the_next(tmp_path):
    for step in range(4):
        write_step(tmp_path, step, [record_of("a"), record_of("b")])
    run, stopped = opened(tmp_path), threading.Event()
    stopped.set()
    bring_up_to_date(run, stopped)
    assert 0 < num_rollouts(run) < 8
    seen = [one["done_bytes"] for one in update(tmp_path, run.index.path, 0)]
    assert seen == sorted(seen) and seen[-1] == sum(path.stat().st_size for path in tmp_path.rglob("*.jsonl"))
    assert num_rollouts(run) == 8


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    write_step(tmp_path, 0, [record_of("a")])
    os.mkfifo(tmp_path / "rollouts" / "step_000001.jsonl")
    (tmp_path / "rollouts" / "step_000002.jsonl").mkdir()
    run = opened(tmp_path)
    bring_up_to_date(run, threading.Event())
    assert tasks(run) == ["a"]
    assert "not a regular file" in run.problem or "is a directory" in run.problem.lower()


def test_viewers_that_start_at_once_make_one_index_and_share_the_reading(tmp_path):
    for step in range(40):
        write_step(tmp_path, step, [record_of("a")])
    with ThreadPoolExecutor(8) as pool:
        runs = [*pool.map(indexed, [tmp_path] * 8)]
    with connect(runs[0].index.path) as connection:
        assert connection.execute("SELECT max(id) FROM files").fetchone()[0] == 40  # each file was read once
    assert {num_rollouts(run) for run in runs} == {40}


def _zeros(path):
    with connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(bytes(path.stat().st_size))


def _deleted(path):
    for file in path.parent.iterdir():
        file.unlink()
    with connect(path) as connection, pytest.raises(sqlite3.OperationalError):
        connection.execute("SELECT * FROM files")  # which leaves an empty file behind


CONTENTS = (b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\x07" * 5000)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("spoil", [_zeros, _deleted, *(lambda path, c=c: path.write_bytes(c) for c in CONTENTS)])
def test_an_index_that_is_damaged_or_gone_is_built_anew(tmp_path, spoil, is_open):
    run = indexed(make_run(tmp_path / "run"))
    for path in (run.index.path.with_name(run.index.path.name + suffix) for suffix in ("-wal", "-shm")):
        path.unlink(missing_ok=True)
    spoil(run.index.path)
    if not is_open:
        run = opened(tmp_path / "run")
        assert num_rollouts(run) == 0
    bring_up_to_date(run, threading.Event())
    refresh(run)
    assert num_rollouts(run) == 8


def test_the_index_of_a_run_that_cannot_be_written_lies_in_the_cache(tmp_path, monkeypatch):
    make_run(tmp_path / "run")
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path / "run")  # permissions do not bind root
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    assert index_path(tmp_path / "run").is_relative_to(tmp_path / "cache")
    assert num_rollouts(indexed(tmp_path / "run")) == 8
