"""The script as a person runs it: writes whole files or none, and says what is wrong."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.game_files import read_games

SCRIPT = str(Path(__file__).parents[4] / "scripts" / "generate_data.py")
pytestmark = pytest.mark.slow


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """Run the script here, and return what it ends with: nothing if all went well."""
    monkeypatch.setattr(sys, "argv", [SCRIPT, *map(str, arguments)])
    try:
        runpy.run_path(SCRIPT, run_name="__main__")
    except SystemExit as ended:
        return str(ended.code)
    return ""


def test_it_writes_games_that_are_read_and_the_same_for_the_same_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, again, other = (tmp_path / name for name in ("data/first.jsonl", "again.jsonl", "other.jsonl"))
    for file, seed in ((first, 4), (again, 4), (other, 5)):
        assert run(monkeypatch, "--num_games", 12, "--n", 3, "--seed", seed, "--output", file) == ""
        assert f"12 games in {file}" in capsys.readouterr().out
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    deals = read_games(first)
    assert [deal.game_id for deal in deals] == [f"v2-n3-seed4-{k}" for k in range(12)]
    assert all(deal.requires_communication for deal in deals)
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "--num_games", 2, "--n", 2) == "" and len(read_games(Path("data/games.jsonl"))) == 2


def test_the_splits_are_those_of_the_environment_and_share_no_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taskset = MatchingTaskset(n=3, num_train=20, num_test=20)
    for split in ("train", "test"):
        file = tmp_path / f"{split}.jsonl"
        arguments = ("--num_games", 20, "--n", 3, "--split", split, "--max_turns", 12, "--output", file)
        assert run(monkeypatch, *arguments) == ""
        assert [f"{split}/{deal.game_id}" for deal in read_games(file)] == [task.id for task in taskset.tasks(split)]
        assert "after 12 messages" in json.loads(file.read_text().splitlines()[0])["prompt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--num_games", "0"), "--num_games is 0; it must be 1 at least"),
        (("--output", "/"), "/ is a directory"),
        (("--output", "games.parquet"), "--output is games.parquet, but games are written as JSONL"),
        (("--output", "there.jsonl"), "add --force to replace it"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.jsonl").write_text("precious")
    said = run(monkeypatch, "--num_games", "5", "--n", "2", "--output", "data/games.jsonl", *arguments)
    assert said.startswith("error: ") and message in said and "--output_dir" not in said
    assert [*tmp_path.iterdir()] == [tmp_path / "there.jsonl"] and Path("there.jsonl").read_text() == "precious"
    assert run(monkeypatch, "--num_games", 1, "--n", 2, "--output", "there.jsonl", "--force") == ""
