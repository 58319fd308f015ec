"""How many samplers a run is given by the length of its queue."""

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slimrl_cluster.launch.scale import (
    GROW_S,
    SHRINK_S,
    LoadReader,
    QueueScale,
    clear_scale,
    published_load,
    read_scale,
    write_load,
    write_scale,
)


def test_a_queue_that_stays_brings_one_sampler_after_the_other():
    scale = QueueScale(1, 3, slots=10)
    assert scale.num(1, 11, 0.0) == 1 and scale.num(1, 11, GROW_S - 1) == 1
    assert scale.num(1, 11, GROW_S) == 2
    assert scale.num(2, 30, GROW_S + 1) == 2  # the next has to wait for as long again
    assert scale.num(2, 30, 2 * GROW_S) == 3
    assert scale.num(3, 99, 9 * GROW_S) == 3  # there are no more


def test_a_queue_that_comes_and_goes_changes_nothing():
    scale = QueueScale(1, 3, slots=10)
    for second in range(200):
        assert scale.num(2, 30 if second % 7 else 15, float(second)) == 2


def test_a_sampler_that_is_not_needed_goes_after_a_while():
    scale = QueueScale(1, 3, slots=10)
    assert scale.num(2, 10, 0.0) == 2 and scale.num(2, 10, SHRINK_S) == 1
    assert scale.num(1, 0, 2 * SHRINK_S) == 1


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 60)), max_size=40))
def test_the_number_stays_within_its_bounds_and_moves_by_one(loads: list[tuple[int, float]]):
    scale, now, at_s = QueueScale(2, 5, slots=8), 2, 0.0
    for num_open, seconds in loads:
        at_s += seconds
        wanted = scale.num(now, num_open, at_s)
        assert 2 <= wanted <= 5 and abs(wanted - now) <= 1
        now = wanted


def test_what_is_asked_and_told_is_read_until_it_is_old_or_forgotten(tmp_path: Path, monkeypatch):
    load = LoadReader(tmp_path)
    assert read_scale(tmp_path) == 0 and load.read() is None
    write_scale(tmp_path, 4)
    monkeypatch.setattr(time, "time", lambda: 5.0)  # of a clock that is decades behind
    write_load(tmp_path, 7)
    assert read_scale(tmp_path) == 4 and load.read() == 7 and load.read() == 7
    monkeypatch.setattr("slimrl_cluster.launch.scale.STALE_S", 0.0)
    assert load.read() is None
    (tmp_path / "transport" / "load.json").write_bytes(b"{")
    assert load.read() is None
    clear_scale(tmp_path)
    assert read_scale(tmp_path) == 0


def test_the_load_is_told_as_long_as_somebody_samples(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("slimrl_cluster.launch.scale.TELL_S", 0.01)
    numbers = iter(range(1, 1000))
    with published_load(tmp_path, lambda: next(numbers)):
        load = LoadReader(tmp_path)
        while (load.read() or 0) < 3:
            pass
