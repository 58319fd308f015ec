from pathlib import Path

from slimrl.monitor.thinning import NEWEST, thin_rollouts


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
    assert thin_rollouts(tmp_path, 3200) == 15
    left = steps_left(tmp_path)
    assert left == [0, 4, 8, 12, 16, *range(20, 30)]
    assert len(list((tmp_path / "rollouts").iterdir())) == 2 * len(left)


def test_the_first_and_the_newest_steps_stay_whatever_they_take(tmp_path):
    write_steps(tmp_path, 30, 100)
    thin_rollouts(tmp_path, 1)
    assert steps_left(tmp_path) == [0, *range(30 - NEWEST, 30)]


def test_a_directory_without_rollouts_is_no_error(tmp_path):
    assert thin_rollouts(tmp_path, 1) == 0
