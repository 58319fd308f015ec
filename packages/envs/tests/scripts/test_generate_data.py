"""The script as a person runs it: writes whole files or none, and says what is wrong."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.game_files import read_games

COMMAND = [sys.executable, str(Path(__file__).parents[4] / "scripts" / "generate_data.py")]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.nightly
def test_it_writes_games_that_are_read_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("data/first.jsonl", "again.jsonl", "other.jsonl"))
    for file, seed in ((first, "4"), (again, "4"), (other, "5")):
        done = run("--num_games", "12", "--n", "3", "--seed", seed, "--output", str(file))
        assert done.returncode == 0, done.stderr
        assert f"12 games in {file}" in done.stdout and "games: 6/12" in done.stdout
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    deals = read_games(first)
    assert [deal.game_id for deal in deals] == [f"v2-n3-seed4-{k}" for k in range(12)]
    assert all(deal.requires_communication for deal in deals)
    assert set(json.loads(first.read_text().splitlines()[0])) == {
        "prompt", "game_state", "ground_truth", "optimal_score", "game_id", "name",
    }  # fmt: skip


@pytest.mark.nightly
def test_the_splits_are_those_of_the_environment_and_share_no_game(tmp_path: Path) -> None:
    taskset = MatchingTaskset(n=3, num_train=20, num_test=20)
    for split in ("train", "test"):
        file = tmp_path / f"{split}.jsonl"
        arguments = ("--num_games", "20", "--n", "3", "--split", split, "--max_turns", "12", "--output", str(file))
        assert run(*arguments).returncode == 0
        assert [f"{split}/{deal.game_id}" for deal in read_games(file)] == [task.id for task in taskset.tasks(split)]
        assert "after 12 messages" in json.loads(file.read_text().splitlines()[0])["prompt"]


@pytest.mark.slow
def test_without_an_output_the_file_lies_in_data(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--num_games", "2", "--n", "2"], capture_output=True, text=True, cwd=tmp_path)
    assert "2 games in data/games.jsonl" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "data" / "games.jsonl").read_text().splitlines()]
    assert [content["game_id"] for content in rows] == [0, 1]


@pytest.mark.nightly
def test_a_file_that_exists_is_replaced_by_force_alone(tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    file.write_text("precious")
    refused = run("--num_games", "1", "--n", "2", "--output", str(file))
    assert refused.returncode == 1 and "add --force to replace it" in refused.stderr
    assert file.read_text() == "precious"
    assert run("--num_games", "1", "--n", "2", "--output", str(file), "--force").returncode == 0
    assert len(read_games(file)) == 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_games", "0"), "--num_games is 0; it must be 1 at least"),
        (("--num_games", "5", "--max_turns", "1"), "--max_turns is 1; it must be 2 at least"),
        (("--num_games", "5", "--n", "11"), "n is 11, but matching games are dealt for n = 2 to 10"),
        (("--num_games", "5", "--output", "/"), "/ is a directory"),
        (
            ("--num_games", "5", "--output", "games.parquet"),
            "--output is games.parquet, but games are written as JSONL",
        ),
        (("--num_games", "5", "--output", "games"), "games are written as JSONL: call it .jsonl"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("--output", str(tmp_path / "data" / "games.jsonl"), *arguments)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_told_by_the_flag_of_this_script(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    done = run("--num_games", "1", "--n", "2", "--output", str(tmp_path / "file/games.jsonl"))
    assert done.returncode == 1 and "file/games.jsonl could not be written: " in done.stderr
    assert "another --output." in done.stderr and "--output_dir" not in done.stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs started by the test can be interrupted, also where the tests run in the background, which cannot."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("blow", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_leaves_no_half_file(tmp_path: Path, blow: signal.Signals) -> None:
    file = tmp_path / "games.jsonl"
    arguments = ["--num_games", "1000000", "--n", "3", "--output", str(file)]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(blow)
        _, stderr = process.communicate(timeout=60)
    assert not file.exists()
    if blow == signal.SIGINT:
        assert b"interrupted; nothing was written" in stderr and list(tmp_path.iterdir()) == []
