"""Files of games: a written game is read, and a row that is no game is named by file and line."""

import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from slimrl.errors import UserError
from slimrl_envs.matching_game.rules.deal import Deal
from slimrl_envs.matching_game.rules.game_files import lines, read_games, row
from slimrl_envs.matching_game.rules.generator import deals

DEALS = tuple(islice(deals(random.Random(0), 3, "game-"), 5))
OWN_NAMES = replace(DEALS[0], reviewers=("Zoë Ek", "Bo Ek", "Bo Li"), papers=("A: one", "B", "C: c: c"))
ROW = row(DEALS[0], 7)
STATE = ROW["game_state"]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(content)}\n" for content in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("deals", [DEALS, (OWN_NAMES,)])
def test_a_written_game_is_read(deals: tuple[Deal, ...], tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    file.write_bytes(b"".join(lines(deals)))
    assert read_games(file) == list(deals)
    assert [json.loads(line)["game_id"] for line in lines(deals)] == list(range(len(deals)))


def test_a_row_needs_no_more_than_a_state_without_an_order(tmp_path: Path) -> None:
    states = [row(deal, 0)["game_state"] | {"papers": None, "order": None} for deal in DEALS[:2]]
    file = write(tmp_path / "games.jsonl", {"game_state": states[0]}, {"game_state": states[1], "game_id": 7})
    names = (f"{file}:1", "7")
    expected = [replace(deal, order=((), ()), game_id=name) for deal, name in zip(DEALS, names, strict=False)]
    assert read_games(file) == expected


def test_a_row_has_the_prompt_of_player_1_the_state_twice_and_the_optimum() -> None:
    assert list(ROW) == ["prompt", "game_state", "ground_truth", "optimal_score", "game_id", "name"]
    assert list(STATE) == ["table", "mask1", "mask2", "scale1", "scale2", "best_assignment_reward", "order"]
    assert ROW["ground_truth"] == STATE
    assert ROW["optimal_score"] == STATE["best_assignment_reward"] == DEALS[0].best
    tags = ("[message]", "[propose]", "[accept]", "[reject]")
    assert all(text in ROW["prompt"] for text in (*tags, "3 reviewers", DEALS[0].table_text(0)))
    assert (ROW["game_id"], ROW["name"]) == (7, "game-0")
    assert "after 12 messages" in ROW["prompt"] and "after 20 messages" in row(DEALS[0], 0, 20)["prompt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not a row", "here stands not a row"),
        ({"prompt": "a"}, 'here stands {"prompt": "a"}'),
        ({"game_state": [1]}, "is no matching game"),
        ({"game_state": {"table": [[1]]}}, "mask1: Field required"),
        *(
            ({"game_state": STATE | {key: value}}, message)
            for key, value, message in (
                ("table", [], "table must be square, 2 x 2 at least"),
                ("table", [[1, 2], [3, 4]], "mask1 must be square, 2 x 2 at least, and as large as the table"),
                ("table", [[1, 2, 100], [1, 2, 3], [1, 2, 3]], "table.0.2: Input should be less than or equal"),
                ("mask2", [[1, 1, 2]] * 3, "mask2.0.2"),
                ("scale1", float("nan"), "scale1: Input should be a finite number, not nan"),
                ("scale2", 1e308, "scale2: Input should be less than or equal to 1000"),
                ("best_assignment_reward", 1, "best_assignment_reward is 1, but the best assignment of this"),
                ("order", [[0, 1, 1], []], "order must have each of 0 to 2 once"),
                ("reviewers", ["Ava Li"], "need 3 different names each"),
                ("reviewers", ["Ava Li", "ava li", "Bo"], "need 3 different names each"),
            )
        ),
        ({"game_state": STATE | {"mask1": [[0] * 3] * 3, "mask2": [[0] * 3] * 3}}, "is not 50, and nobody knows it"),
    ],
)
def test_a_row_that_is_no_game_is_named_by_file_and_line(tmp_path: Path, content: Any, message: str) -> None:
    file = write(tmp_path / "games.jsonl", row(DEALS[1], 0), content)
    with pytest.raises(UserError) as found:
        read_games(file)
    assert f"{file}:2 is no matching game" in str(found.value) and message in str(found.value)


def test_a_file_without_games_is_an_error_that_says_how_to_make_some(tmp_path: Path) -> None:
    for name in ("games.jsonl", "games.txt"):
        with pytest.raises(UserError, match=rf"{name} holds no games\. .*generate_data\.py --output NAME\.jsonl"):
            read_games(write(tmp_path / name))
    pytest.importorskip("datasets", reason="the extra [data] is not installed")
    (tmp_path / "games.parquet").write_bytes(b"PAR1" + bytes(5000) + b"PAR1")
    with pytest.raises(UserError, match=r"games\.parquet cannot be read as a parquet file: .*the path of the games"):
        read_games(tmp_path / "games.parquet")
