"""The benchmarks of these environments, and that the pages show what all results say. Nothing is timed here."""

import json
import math
import tomllib
from itertools import islice, permutations, product
from pathlib import Path
from random import Random

import pytest

from benchmarks import table
from benchmarks.harness import episodes
from benchmarks.learning import matching_mute, wordle
from slimrl.environments.find import load_taskset
from slimrl.launch.supervised import order_of_demonstrations
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Rollout
from slimrl_envs.matching_game.rules.game import Propose
from slimrl_envs.matching_game.rules.generator import deals_of_seed
from slimrl_envs.matching_game.rules.protocol import format_act
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


WORDLE_RUN = """
seed = 0
[[orchestrator.env]]
id = "wordle"
args = { num_answers = 100, hints = true, spelled = true, opened = true }
[warmup]
max_steps = 1
batch_size = 1
"""


def test_what_rl_adds_to_wordle_is_paired_by_game(tmp_path: Path) -> None:
    env = tomllib.loads(WORDLE_RUN)["orchestrator"]["env"][0]
    demonstrated = order_of_demonstrations([load_taskset(env["id"], env["args"])], 0).draw(0).task
    _, guess, answer = demonstrated.id.split("/")
    names = (f"test/{guess}/{answer}", "test/vivid/mummy", "test/vivid/kayak", "test/vivid/lolly")
    played = {("a", "start"): (0.0, 0.5, 0.25, 0.0), ("a", "final"): (0.5, 0.75, 0.5, 1.0)}
    played |= {("b", "start"): (0.5, 0.25, 0.25, 0.0), ("b", "final"): (0.25, 0.5, 0.25, math.nan)}
    for (name, stage), rewards in played.items():
        games = [
            Rollout(game, (), (), (), (), reward, failure="timeout" if math.isnan(reward) else None)
            for game, reward in zip(names, rewards, strict=True)
        ]
        if stage == "final":
            games.reverse()
        for mode in ("greedy", "sampled"):
            records = [RolloutRecord(game, (), "") for game in games]
            write_rollouts(tmp_path / name / "held_out" / f"{stage}_{mode}.jsonl", records)
        (tmp_path / name / "config.toml").write_text(WORDLE_RUN)
    for name in ("a", "b"):
        episodes.keep_rewards(tmp_path / name, tmp_path / name)
    rises = wordle.rises_of([tmp_path / "a", tmp_path / "b"])
    found = rises["greedy"]
    assert found["a"]["mean"] == pytest.approx((0.5 + 0.25 + 0.25) / 3)
    assert found["b"]["mean"] == pytest.approx(0.0)
    assert found["together"]["mean"] == pytest.approx(1 / 6)
    assert 0 < found["together"]["low"] < 1 / 6 < found["together"]["high"]
    assert [estimate["num"] for estimate in found.values()] == [3, 3, 3]
    unseen = rises["greedy, unseen"]  # not the first game, whose first guess and marks the warm-up had shown
    assert [estimate["num"] for estimate in unseen.values()] == [2, 2, 2]
    assert [estimate["mean"] for estimate in unseen.values()] == pytest.approx([0.25, 0.125, 0.1875])


def test_a_mute_partner_tells_nothing_and_judges_as_ever() -> None:
    num_told = 0
    for deal in islice(deals_of_seed(3, 5), 20):
        shy, mute = (kind(deal, 1, Random(0)) for kind in (ShyPartner, matching_mute.MutePartner))
        for reviewer, paper in product(deal.short_reviewers, deal.short_papers):
            asked = f"[message] What is your score for {reviewer} and {paper}?"
            told, silent = shy.reply(asked), f"[message] I do not know {reviewer} for {paper}."
            assert mute.reply(asked) == silent
            num_told += told != silent
        for assignment in permutations(range(3)):
            proposal = format_act(Propose(assignment), deal)
            assert mute.reply(proposal) == shy.reply(proposal)
    assert num_told > 20
