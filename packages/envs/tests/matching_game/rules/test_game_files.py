"""Files of games: what is written is read, and what is no game is named by file and line."""

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


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(content)}\n" for content in rows), encoding="utf-8")
    return path


def with_state(deal: Deal, **changes: Any) -> dict[str, Any]:
    content = row(deal, 0)
    return content | {"game_state": content["game_state"] | changes}


OWN_NAMES = replace(DEALS[0], reviewers=("Zoë Ek", "Bo Ek", "Bo Li"), papers=("A: one", "B", "C: c: c"))


@pytest.mark.parametrize("deals", [DEALS, (OWN_NAMES,)])
def test_what_is_written_is_read(deals: tuple[Deal, ...], tmp_path: Path) -> None:
    file = tmp_path / "games.jsonl"
    file.write_bytes(b"".join(lines(deals)))
    assert read_games(file) == list(deals)
    assert [json.loads(line)["game_id"] for line in lines(deals)] == list(range(len(deals)))


def test_a_row_needs_no_more_than_a_state_without_an_order(tmp_path: Path) -> None:
    states = [row(deal, 0)["game_state"] | {"papers": None, "order": None} for deal in DEALS[:2]]
    file = write(tmp_path / "games.jsonl", {"game_state": states[0]}, {"game_state": states[1], "game_id": 7})
    expected = [
        replace(deal, order=((), ()), game_id=name) for deal, name in zip(DEALS, (f"{file}:1", "7"), strict=False)
    ]
    assert read_games(file) == expected


def test_a_row_has_the_prompt_of_player_1_the_state_twice_and_the_optimum() -> None:
    content = row(DEALS[0], 7)
    assert list(content) == ["prompt", "game_state", "ground_truth", "optimal_score", "game_id", "name"]
    assert list(content["game_state"]) == [
        "table", "mask1", "mask2", "scale1", "scale2", "best_assignment_reward", "order"
    ]  # fmt: skip
    assert content["ground_truth"] == content["game_state"]
    assert content["optimal_score"] == content["game_state"]["best_assignment_reward"] == DEALS[0].best
    assert DEALS[0].table_text(0) in content["prompt"] and "[propose]" in content["prompt"]
    assert (content["game_id"], content["name"]) == (7, "game-0")
    assert "after 12 messages" in content["prompt"] and "after 20 messages" in row(DEALS[0], 0, 20)["prompt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not a row", "here stands not a row"),
        ({"prompt": "a"}, 'here stands {"prompt": "a"}'),
        ({"game_state": [1]}, "is no matching game"),
        ({"game_state": {"table": [[1]]}}, "mask1: Field required"),
        (with_state(DEALS[0], table=3), "table: Input should be a valid list, not 3"),
        (with_state(DEALS[0], table=[]), "table must be square, 2 x 2 at least"),
        (
            with_state(DEALS[0], table=[[1, 2], [3, 4]]),
            "mask1 must be square, 2 x 2 at least, and as large as the table",
        ),
        (with_state(DEALS[0], mask2=[[1, 1, 2]] * 3), "mask2.0.2"),
        (with_state(DEALS[0], scale1="2"), "scale1: Input should be a valid number, not '2'"),
        (with_state(DEALS[0], scale1=float("nan")), "scale1: Input should be a finite number, not nan"),
        (with_state(DEALS[0], scale1=10**400), "scale1: Input should be a valid number"),
        (with_state(DEALS[0], scale2=1e308), "scale2: Input should be less than or equal to 1000"),
        (
            with_state(DEALS[0], best_assignment_reward=1),
            "best_assignment_reward is 1, but the best assignment of this",
        ),
        (with_state(DEALS[0], order=[[0, 1, 2]]), "order: List should have at least 2 items"),
        (with_state(DEALS[0], order=[[0, 1, "a"], []]), "order.0.2: Input should be a valid integer, not 'a'"),
        (with_state(DEALS[0], order=[[0, 1, 1], []]), "order must have each of 0 to 2 once"),
        (with_state(DEALS[0], reviewers=["Ava Li"]), "reviewers has 1 names, and the table 3"),
        (with_state(DEALS[0], reviewers="Ava Li"), "reviewers: Input should be a valid list, not 'Ava Li'"),
        (
            with_state(DEALS[0], table=[[1, 2, 100], [1, 2, 3], [1, 2, 3]]),
            "table.0.2: Input should be less than or equal",
        ),
        (
            with_state(DEALS[0], table=[[1, 2, True], [1, 2, 3], [1, 2, 3]]),
            "table.0.2: Input should be a valid integer",
        ),
        (with_state(DEALS[0], mask1=[[0] * 3] * 3, mask2=[[0] * 3] * 3), "is not 50, and nobody knows it"),
        *(
            (with_state(DEALS[0], **{kind: names}), message)
            for kind, names, message in (
                ("papers", ["BLEU: one", "bleu: two", "C"], "two papers or reviewers are called 'bleu'"),
                ("reviewers", ["Ava Li", "ava li", "Bo"], "two papers or reviewers are called 'ava li'"),
                ("papers", ["Ava: a", "BLEU: b", "C"], "two papers or reviewers are called 'ava'"),
                ("reviewers", ["Ava Li", " ", "Bo"], "is empty"),
                ("papers", ["a\nb", "b", "c"], "or a line break"),
                ("reviewers", ["Ava Li", "Li, Bo", "Bo"], "'Li, Bo' has one of"),
                ("reviewers", ["Ava Li", "B. Ek", "Bo"], "'B. Ek' has one of"),
                ("papers", ["GPT-3.5: a", "BLEU: b", "C"], "'GPT-3.5' has one of"),
            )
        ),
    ],
)
def test_what_is_no_game_is_named_by_file_and_line(tmp_path: Path, content: Any, message: str) -> None:
    file = write(tmp_path / "games.jsonl", row(DEALS[1], 0), content)
    with pytest.raises(UserError) as found:
        read_games(file)
    assert f"{file}:2 is no matching game" in str(found.value) and message in str(found.value)


@pytest.mark.parametrize("line", [b'{"game_state": {"table"', b"[" * 1_000_000])
def test_a_line_that_is_no_json_is_named(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_bytes(next(lines(DEALS)) + line)
    with pytest.raises(UserError, match=r"games.jsonl:2 is no matching game"):
        read_games(tmp_path / "games.jsonl")


@pytest.mark.parametrize("content", [b"", next(lines(DEALS)), b"PAR1" + bytes(5000) + b"PAR1"])
def test_a_parquet_file_that_is_none_is_named(content: bytes, tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason="the extra [data] is not installed")
    file = tmp_path / "games.parquet"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"games\.parquet cannot be read as a parquet file: .*the path of the games"):
        read_games(file)


def test_a_file_without_games_is_an_error_that_says_how_to_make_some(tmp_path: Path) -> None:
    for name in ("games.jsonl", "games.txt"):
        with pytest.raises(UserError, match=rf"{name} holds no games\. .*generate_data\.py --output NAME\.jsonl"):
            read_games(write(tmp_path / name))
    with pytest.raises(UserError, match="Check the path of the games"):
        read_games(tmp_path / "missing.jsonl")
