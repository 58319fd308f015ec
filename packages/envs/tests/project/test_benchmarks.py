"""The benchmarks of these environments, and that the pages show what all results say. Nothing is timed here."""

import json
from itertools import islice, permutations, product
from pathlib import Path
from random import Random

import pytest

from benchmarks import table
from benchmarks.learning import matching_mute
from slimrl_envs.matching_game.rules.game import Propose, Say
from slimrl_envs.matching_game.rules.generator import deals_of_seed
from slimrl_envs.matching_game.rules.shy_partner import ShyPartner

ROOT = Path(__file__).parents[4]


def test_readme_shows_what_the_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["table", "--check"])
    table.main()  # leaves by SystemExit if not


def test_a_table_that_was_edited_is_found_and_written_again(tmp_path: Path) -> None:
    line = {"groups": ["4,2,8,8,8", "4,4,8,8,8"], "unique": [100, 200], "sample_s": [1.0, 2.0], "train_s": [1.0, 1.5]}
    content = {
        "date": "2026-01-01",
        "command": "python -m benchmarks.speed.scaling",
        "machine": {"cpu": "a CPU", "cores": 2, "bfloat16_instructions": [], "load_average_before": 0.1},
        "summary": {"float32": {"turns": {**line, "exponent": {"sample_s": 1.0, "train_s": 0.58}}}},
    }
    (tmp_path / "scaling.json").write_text(json.dumps(content))
    edited = "Before.\n\n<!-- scaling.json -->\nby hand\n<!-- end -->\n\n<!-- decode.json -->\n<!-- end -->\n"
    text = table.render(edited, tmp_path)
    assert "| float32 | turns | 2 | 4 | 100-200 | 1.00-2.00 | 1.00 | 1.00-1.50 | 0.58 |" in text
    assert "by hand" not in text and "Not measured yet." in text and text.startswith("Before.\n")
    assert table.render(text, tmp_path) == text


def test_a_mute_partner_tells_nothing_and_judges_as_ever() -> None:
    num_told = 0
    for deal in islice(deals_of_seed(3, 5), 20):
        shy, mute = (kind(deal, 1, Random(0)) for kind in (ShyPartner, matching_mute.MutePartner))
        for reviewer, paper in product(deal.short_reviewers, deal.short_papers):
            asked = Say(f"What is your score for {reviewer} and {paper}?")
            told, silent = shy.act(asked), Say(f"I do not know {reviewer} for {paper}.")
            assert mute.act(asked) == silent
            num_told += told != silent
        for assignment in permutations(range(3)):
            assert mute.act(Propose(assignment)) == shy.act(Propose(assignment))
    assert num_told > 20
