"""Does a policy of the matching game listen? The same held-out games, with a partner that never knows a score.

`uv run python benchmarks/matching_listening.py --model outputs/matching_game/weights/step_14` plays the games of
`examples/matching_game/eval.toml` twice and writes `benchmarks/results/matching_game/listening.json`. To each question
the mute partner says that it does not know; proposals it judges by what it sees, as ever. So what somebody earns less
with it is what the answers are worth to them: nothing to the script `deaf`, which hears none.
"""

import argparse
import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runs import ROOT, Job, finish
from slimrl.environments.matching_game import MatchingTaskset
from slimrl.environments.matching_others import Asked, Scripted
from slimrl.games.matching.deal import Deal
from slimrl.games.matching.game import MatchingGame
from slimrl.games.matching.shy import ShyPartner
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.stats import estimate_mean, paired_difference
from slimrl.types import Rollout, Task

CONFIG = ROOT / "examples" / "matching_game" / "eval.toml"
RESULTS = ROOT / "benchmarks" / "results" / "matching_game" / "listening.json"
BASELINES = ["script:deaf", "script:planner"]
FILES = {
    "the policy, greedy": "eval_greedy",
    "the policy, sampled": "eval_sampled",
    "script:deaf": "vs_script-deaf_scripted",
    "script:planner": "vs_script-planner_scripted",
}
SCORES = ("optimum", "distinct_questions")


class MutePartner(ShyPartner):
    """Has nothing to tell."""

    def __init__(self, deal: Deal, player: int, rng: random.Random) -> None:
        super().__init__(deal, player, rng)
        self._seen = ((None,) * deal.size,) * deal.size


class Mute(MatchingTaskset):
    """The same games with the same partner, but for its answers."""

    def _partner(self, game: MatchingGame, player: int, task: Task, scripted: bool = False) -> Asked:
        rng = random.Random(f"matching-game/{task.id}")
        return Asked(game, player, Scripted(MutePartner(game.deal, player, rng)))


def compared(told: list[Rollout], mute: list[Rollout]) -> dict[str, Any]:
    """Reward with and without answers, the paired difference over games, and means of the other scores."""
    pairs = [(a, b) for a, b in zip(told, mute, strict=True) if not (a.failure or b.failure)]
    assert pairs and all(a.task_id == b.task_id for a, b in pairs)
    rewards = [[pair[side].reward for pair in pairs] for side in (0, 1)]
    means = {
        score: [round(estimate_mean([pair[side].metrics[score] for pair in pairs]).mean, 4) for side in (0, 1)]
        for score in SCORES
    }
    return {
        "told": asdict(estimate_mean(rewards[0])),
        "mute": asdict(estimate_mean(rewards[1])),
        "difference": asdict(paired_difference(*rewards)),
        **means,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="weights of a run of examples/matching_game/rl.toml")
    parser.add_argument("--runs", type=Path, default=Path("outputs/matching_listening"), help="where the runs go")
    arguments = parser.parse_args()
    always = ["@", str(CONFIG), "--model.name", arguments.model, "--baselines", json.dumps(BASELINES)]
    games = {"told": [], "mute": ["--env.0.id", f"{Path(__file__).resolve()}:Mute"]}
    for name, flags in games.items():
        run = arguments.runs / name
        finish(Job("eval", [*always, *flags, "--output_dir", str(run)], run, "results.json"), resume=True)
    found = {}
    for who, file in FILES.items():
        played = [read_rollouts(arguments.runs / name / "held_out" / f"{file}.jsonl") for name in games]
        found[who] = compared(*([record.rollout for record in records] for records in played))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    for who, row in found.items():
        worth, means = row["difference"], " and ".join(f"{name} {row[name]['mean']:.3f}" for name in games)
        print(f"{who}: {means}; answers are worth {worth['mean']:.3f} ({worth['low']:.3f} to {worth['high']:.3f})")


if __name__ == "__main__":
    main()
