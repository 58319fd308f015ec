"""Games that people played, replayed act by act. Their file is not ours to ship: TEST_DIALOP names its directory."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slimrl_envs.matching_game.rules.deal import REVIEWERS, Deal
from slimrl_envs.matching_game.rules.game import Accept, MatchingGame, Propose, Reject, Say
from slimrl_envs.matching_game.rules.game_files import deal_of, read_games, row
from slimrl_envs.matching_game.rules.generator import upstream_deal
from slimrl_envs.matching_game.rules.protocol import parse_act, play_text

DIRECTORY = os.environ.get("TEST_DIALOP", "")
pytestmark = pytest.mark.skipif(not DIRECTORY, reason="TEST_DIALOP names no directory with human_games.jsonl")
# One of the games has other reviewers, in this order.
OTHER_REVIEWERS = (
    "Olivia Anderson", "Lucas Brown", "Alexander Hill", "Noah Lee", "Mason Martin", "Ava Thompson", "Harper Walker",
    "Isabella Wright",
)  # fmt: skip


def human_games() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(DIRECTORY) / "human_games.jsonl").read_text("utf-8").splitlines()]


def deal_that_people_had(played: dict[str, Any]) -> Deal:
    proposals = [entry["proposal"] for entry in played["action_log"] if entry["type"] == "proposal"]
    reviewers = REVIEWERS if REVIEWERS[0] in proposals[-1] else OTHER_REVIEWERS
    return deal_of(played | {"reviewers": list(reviewers)}, "human")


def replayed(played: dict[str, Any]) -> MatchingGame:
    """The game, each proposal read from its text. People spoke and proposed when they liked: a player whose turn it is
    not gets it, and a proposal that is followed by another counts as rejected."""
    game = MatchingGame(deal_that_people_had(played), max_turns=1000)
    for entry in played["action_log"]:
        player = entry["player"]
        if entry["type"] == "proposal_response":
            game.play(player, Accept() if entry["response"]["accept"] else Reject())
        elif entry["type"] == "proposal":
            if game.proposal is not None:
                game.play(game.turn, Reject())
            if game.turn != player:
                game.play(game.turn, Say("(listens)"))
            act = play_text(game, player, f"[propose] {entry['proposal']}")
            assert act == Propose(proposed(entry))
        elif game.turn == player and game.proposal is None:
            play_text(game, player, f"[message] {entry['message']['data']}")
    return game


def proposed(entry: dict[str, Any]) -> tuple[int, ...]:
    by_paper = {paper: reviewer for reviewer, paper in entry["proposal_ids"]}
    return tuple(by_paper[paper] for paper in range(len(by_paper)))


def test_every_human_game_has_its_recorded_optimum_and_score() -> None:
    games = human_games()
    assert len(games) == 67
    for played in games:
        game = replayed(played)
        assert game.is_over and game.agreed is not None
        assert game.deal.best == played["best_assignment_reward"]
        assert game.deal.value(game.agreed) == played["proposal_reward"] == played["result"]["score"]
        assert game.reward == pytest.approx(played["result"]["norm"])


def test_human_games_can_be_kept_as_rows(tmp_path: Path) -> None:
    deals = [deal_that_people_had(played) for played in human_games()]
    file = tmp_path / "human.jsonl"
    file.write_text("".join(json.dumps(row(deal, n)) + "\n" for n, deal in enumerate(deals)), encoding="utf-8")
    assert read_games(file) == deals


def test_golden_games_are_what_they_were(tmp_path: Path) -> None:
    golden = json.loads((Path(DIRECTORY) / "golden.json").read_text("utf-8"))["seeded"]
    for seeded in golden:
        deal = deal_of(seeded | {"best_assignment_reward": seeded["best"]}, f"upstream-{seeded['seed']}")
        assert upstream_deal(seeded["seed"]) == deal
        for player in (0, 1):
            view = [[deal.seen(player).get((r, p), "") for p in range(8)] for r in range(8)]
            assert view == [values for _, *values in seeded[f"view{player + 1}"]]
        assert [deal.value(deal.own_best(player)) for player in (0, 1)] == seeded["own_view_scores"]
        assert deal.value(tuple(range(8))) == seeded["identity_score"]
        assert parse_act("[accept]", deal) == Accept()
