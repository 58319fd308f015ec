import dataclasses
import json
import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock

from packages.view.tests.made import indexed, line_of, make_run, opened, record_of, refresh, write_held_out, write_step
from packages.view.tests.test_lines import TOO_LARGE
from slimrl.monitor.rollouts import rollout_to_json
from slimrl_view import growing, scan
from slimrl_view.api import Api
from slimrl_view.index import change, connect, index_path
from slimrl_view.indexer import bring_up_to_date, keep_indexed
from slimrl_view.queries import Selection


def tasks(run, file="train"):
    return [row["task"] for row in run.index.rollouts(Selection(limit=5000, file=file))["rows"]]


def test_a_file_is_read_from_where_it_was_left(tmp_path):
    path = write_step(tmp_path, 3, [record_of("a")])
    run = indexed(tmp_path)
    with connect(run.index.path) as connection:
        (first,) = connection.execute("SELECT id FROM rollouts").fetchone()
    with path.open("ab") as file:
        file.write(line_of(record_of("b")))
    refresh(run)
    assert tasks(run) == ["a", "b"]
    with connect(run.index.path) as connection:
        assert connection.execute("SELECT id FROM rollouts WHERE task = 'a'").fetchone()[0] == first
    assert run.index.place("train:3:1").row["task"] == "b"


def test_an_incomplete_last_line_waits_for_its_end(tmp_path):
    path = write_step(tmp_path, 0, [record_of("a")])
    line = line_of(record_of("b"))
    with path.open("ab") as file:
        file.write(line[:200])
    run = indexed(tmp_path)
    assert tasks(run) == ["a"]
    with path.open("ab") as file:
        file.write(line[200:])
    refresh(run)
    assert tasks(run) == ["a", "b"]
    assert run.index.counts() == {"rollouts": 2, "held_out": 0, "damaged": 0}


def test_damaged_lines_are_counted_and_passed_over(tmp_path):
    path = write_step(tmp_path, 0, [record_of("a"), record_of("b"), record_of("c")])
    path.write_bytes(path.read_bytes().replace(b'"task_id": "b"', b'"task_id": "B"') + b"\n\xff\n{}\n")
    run = indexed(tmp_path)
    assert tasks(run) == ["a", "c"]
    assert run.index.counts() == {"rollouts": 2, "held_out": 0, "damaged": 4}
    assert run.index.place("train:0:2").row["task"] == "c"


@pytest.mark.parametrize("change", TOO_LARGE)
def test_a_number_that_is_too_large_costs_its_line_alone(tmp_path, change):
    path = write_step(tmp_path, 0, [record_of("a"), record_of("c")])
    with path.open("ab") as file:
        file.write(json.dumps(rollout_to_json(record_of("b")) | change).encode() + b"\n")
        file.write(line_of(record_of("d")))
    run = indexed(tmp_path)
    assert tasks(run) == ["a", "c", "d"]
    assert run.index.counts() == {"rollouts": 3, "held_out": 0, "damaged": 1}


def test_rewards_whose_sum_is_too_large_have_no_mean(tmp_path):
    write_step(tmp_path, 0, [record_of("a", reward=1e308), record_of("a", reward=1.7e308)])
    [group] = indexed(tmp_path).index.groups(Selection())["groups"]
    assert (group["mean"], group["std"], group["min"], group["max"]) == (None, None, 1e308, 1.7e308)


def test_a_change_that_fails_leaves_nothing_behind(tmp_path):
    run = indexed(make_run(tmp_path / "run"))
    with connect(run.index.path) as connection:
        with pytest.raises(OverflowError):
            fail_half_way(connection)
        with change(connection):  # the connection is as good as new
            connection.execute("DELETE FROM rollouts WHERE held_out")
    assert run.index.counts()["rollouts"] == 8 and len(tasks(run)) == 8


def fail_half_way(connection):
    with change(connection):
        connection.execute("DELETE FROM rollouts")
        connection.execute("INSERT INTO texts VALUES (?, '')", (2**63,))


def test_what_is_wrong_with_one_run_is_said_and_the_others_are_read(tmp_path):
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
        wait_for(lambda: runs[0].problem == "" and runs[0].index.counts()["rollouts"] == 8)


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it did not happen within ten seconds"
        time.sleep(0.01)


def test_a_file_that_was_written_anew_in_place_is_read_anew(tmp_path):
    write_step(tmp_path, 0, [record_of("a"), record_of("b")])
    run = indexed(tmp_path)
    write_step(tmp_path, 0, [record_of("c")])  # shorter
    refresh(run)
    assert tasks(run) == ["c"]
    write_step(tmp_path, 0, [record_of("d"), record_of("e"), record_of("f")])  # longer
    refresh(run)
    assert tasks(run) == ["d", "e", "f"]


def test_a_file_that_was_replaced_is_read_anew(tmp_path):
    path = write_held_out(tmp_path, "eval_greedy", [record_of("a"), record_of("b")])
    run = indexed(tmp_path)
    write_held_out(tmp_path, "new", [record_of("b"), record_of("b")]).replace(path)
    refresh(run)
    assert tasks(run, "held_out/eval_greedy") == ["b", "b"]


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


def test_a_group_without_a_signal_is_one_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PART_BYTES", 700)  # so that a group arrives in parts
    flat = [record_of("flat", advantage=0.0) for _ in range(3)]
    mixed = [record_of("mixed", advantage=advantage) for advantage in (0.0, 0.0, 0.5)]
    trained = [dataclasses.replace(record_of("valued", advantage=0.0), has_signal=True) for _ in range(3)]
    write_step(tmp_path, 0, flat + mixed + trained)
    run = indexed(tmp_path)
    rows = run.index.rollouts(Selection())["rows"]
    assert [row["zero_signal"] for row in rows] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert [group["zero_signal"] for group in run.index.groups(Selection(sort="task"))["groups"]] == [1, 0, 0]


def test_files_larger_than_a_part_and_lines_larger_too_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PART_BYTES", 300)
    monkeypatch.setattr(growing, "MAX_LINE_BYTES", 5000)
    path = write_step(
        tmp_path, 0, [record_of("a"), record_of("b", "long " * 400), record_of("c", "x" * 9000), record_of("d")]
    )
    run = indexed(tmp_path)
    assert tasks(run) == ["a", "b", "d"]
    assert run.index.counts()["damaged"] == 1
    row = run.index.place("train:0:3")
    assert path.read_bytes()[row.begin :][: row.size] + b"\n" == line_of(record_of("d"))


def test_a_pass_ends_when_it_is_told_and_the_next_one_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "PART_BYTES", 700)
    for step in range(4):
        write_step(tmp_path, step, [record_of("a"), record_of("b")])
    run = opened(tmp_path)
    stopped = threading.Event()
    stopped.set()
    bring_up_to_date(run, stopped)
    assert 0 < run.index.counts()["rollouts"] < 8
    refresh(run)
    assert run.index.counts()["rollouts"] == 8


def test_progress_reaches_the_whole(tmp_path):
    make_run(tmp_path / "run")
    run = opened(tmp_path / "run")
    seen = [*scan.update(run.directory.path, run.index.path, 0, "")]
    assert seen[-1]["done_bytes"] == seen[-1]["total_bytes"]
    assert [one["done_bytes"] for one in seen] == sorted(one["done_bytes"] for one in seen)


def test_while_one_viewer_fills_an_index_another_reads_it(tmp_path):
    write_step(tmp_path, 0, [record_of("a")])
    run = indexed(tmp_path)
    write_step(tmp_path, 1, [record_of("b")])
    other = opened(tmp_path)
    with FileLock(run.index.path.with_suffix(".lock")):
        refresh(other)
        assert tasks(other) == ["a"]
        assert other.progress["done_bytes"] < other.progress["total_bytes"]
    refresh(other)
    assert tasks(other) == tasks(run) == ["a", "b"]
    assert other.progress is None


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    write_step(tmp_path, 0, [record_of("a")])
    os.mkfifo(tmp_path / "rollouts" / "step_000001.jsonl")
    (tmp_path / "rollouts" / "step_000002.jsonl").mkdir()
    run = opened(tmp_path)
    bring_up_to_date(run, threading.Event())
    assert tasks(run) == ["a"]
    assert "it is a pipe" in run.problem or "is a directory" in run.problem.lower()


def test_viewers_that_start_at_once_make_one_index(tmp_path):
    make_run(tmp_path / "run")
    with ThreadPoolExecutor(8) as pool:
        runs = [*pool.map(indexed, [tmp_path / "run"] * 8)]
    assert {run.index.counts()["rollouts"] for run in runs} == {8}


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\x07" * 5000])
def test_an_index_that_is_damaged_is_built_anew(tmp_path, content):
    make_run(tmp_path / "run")
    path = index_path(tmp_path / "run")
    path.write_bytes(content)
    assert indexed(tmp_path / "run").index.counts()["rollouts"] == 8


def test_an_index_of_another_program_or_version_is_built_anew(tmp_path):
    make_run(tmp_path / "run")
    path = index_path(tmp_path / "run")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE rollouts (id INTEGER)")
    connection.close()
    run = indexed(tmp_path / "run")
    with connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert run.index.counts()["rollouts"] == 8
    assert opened(tmp_path / "run").index.counts()["rollouts"] == 0


def test_an_index_that_is_damaged_while_it_is_open_is_built_anew(tmp_path):
    make_run(tmp_path / "run")
    run = indexed(tmp_path / "run")
    with connect(run.index.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = run.index.path.stat().st_size
    run.index.path.write_bytes(b"\x00" * size)
    bring_up_to_date(run, threading.Event())
    refresh(run)
    assert run.index.counts()["rollouts"] == 8


def test_a_deleted_index_is_built_anew(tmp_path):
    make_run(tmp_path / "run")
    run = indexed(tmp_path / "run")
    for path in run.index.path.parent.iterdir():
        path.unlink()
    with pytest.raises(sqlite3.OperationalError):
        run.index.counts()  # which leaves an empty file behind
    refresh(run)
    assert run.index.counts()["rollouts"] == 8


def test_the_index_of_a_run_that_cannot_be_written_lies_in_the_cache(tmp_path, monkeypatch):
    make_run(tmp_path / "run")
    (tmp_path / "run" / ".view").write_text("in the way")  # as permissions do not hold for everybody
    monkeypatch.setenv("SLIMRL_CACHE", str(tmp_path / "cache"))
    run = indexed(tmp_path / "run")
    assert Path(os.path.commonpath([run.index.path, tmp_path / "cache"])) == tmp_path / "cache"
    assert run.index.counts()["rollouts"] == 8


def test_an_evaluation_that_has_a_result_and_no_rollout_is_empty(tmp_path):
    for name in ("start_greedy", "final_greedy", "step_2_sampled_0.5"):
        write_held_out(tmp_path, name, [record_of("x")])
    run = indexed(tmp_path)
    assert run.index.empty_evaluations() == []
    (tmp_path / "held_out" / "final_greedy.jsonl").write_bytes(b"")
    half = (tmp_path / "held_out" / "step_2_sampled_0.5.jsonl").read_bytes()[:40]
    (tmp_path / "held_out" / "step_2_sampled_0.5.jsonl").write_bytes(half)
    refresh(run)
    assert run.index.empty_evaluations() == ["final_greedy", "step_2_sampled_0.5"]
    state = Api([run]).answer("/api/state", {})
    assert state["runs"][0]["empty"] == []  # one that goes on has no result yet
    for slug in ("final", "step_2"):
        (tmp_path / "held_out" / f"{slug}.json").write_text('{"name": "after RL"}')
    assert Api([run]).answer("/api/state", {})["runs"][0]["empty"] == ["final_greedy", "step_2_sampled_0.5"]
    write_held_out(tmp_path, "final_greedy", [record_of("x")])
    refresh(run)
    assert run.index.empty_evaluations() == ["step_2_sampled_0.5"]
