from itertools import pairwise
from pathlib import Path

from slimrl.monitor.rollouts import NEWEST, thin_rollouts


def write_steps(output_dir: Path, num: int, size: int) -> None:
    (output_dir / "rollouts").mkdir()
    for step in range(num):
        (output_dir / "rollouts" / f"step_{step:06d}.jsonl").write_bytes(b"x" * size)
        (output_dir / "rollouts" / f"step_{step:06d}.tokens.npz").write_bytes(b"x" * size)


def steps_left(output_dir: Path) -> list[int]:
    return sorted({int(path.name[5:11]) for path in (output_dir / "rollouts").iterdir()})


def test_nothing_goes_while_there_is_room(tmp_path):
    write_steps(tmp_path, 30, 100)
    assert thin_rollouts(tmp_path, 6000) == 0
    assert len(steps_left(tmp_path)) == 30


def test_older_steps_are_left_out_evenly_with_their_tokens(tmp_path):
    write_steps(tmp_path, 30, 100)
    assert thin_rollouts(tmp_path, 3200) == 16
    left = steps_left(tmp_path)
    assert left[0] == 0 and left[-10:] == [*range(20, 30)] and len(left) == 14
    gaps = [after - before for before, after in pairwise(left[:-9])]
    assert max(gaps) <= 2 * min(gaps)
    assert len(list((tmp_path / "rollouts").iterdir())) == 2 * len(left)


def test_a_run_that_grows_keeps_to_the_bound_and_stays_spread(tmp_path):
    write_steps(tmp_path, 1, 100)
    for step in range(1, 300):
        (tmp_path / "rollouts" / f"step_{step:06d}.jsonl").write_bytes(b"x" * 100)
        thin_rollouts(tmp_path, 4000)
    left = steps_left(tmp_path)
    gaps = [after - before for before, after in pairwise(left[:-9])]
    assert 34 <= len(left) <= 40 and max(gaps) <= 4 * min(gaps)


def test_the_first_and_the_newest_steps_stay_whatever_they_take(tmp_path):
    write_steps(tmp_path, 30, 100)
    thin_rollouts(tmp_path, 1)
    assert steps_left(tmp_path) == [0, *range(30 - NEWEST, 30)]


def test_files_of_other_names_stay_and_do_not_count(tmp_path):
    write_steps(tmp_path, 30, 100)
    others = ("step_000001_good.jsonl", "step_000020.mine.jsonl", "step_\u0663.jsonl", "step_000002.jsonl.bak")
    for name in others:
        (tmp_path / "rollouts" / name).write_bytes(b"x" * 9_000)
    assert thin_rollouts(tmp_path, 6000) == 0
    assert thin_rollouts(tmp_path, 1) == 19
    assert {name for name in others if (tmp_path / "rollouts" / name).exists()} == {*others}


def test_a_directory_without_rollouts_is_no_error(tmp_path):
    assert thin_rollouts(tmp_path, 1) == 0
