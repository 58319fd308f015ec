"""Do the seeds of the matching game listen? Their held-out games again, with a partner that never knows a score.

`uv run python -m benchmarks.learning.matching_listening`, after `benchmarks/learning/matching_game.py` and of the same
runs. To each question the mute partner says that it does not know; proposals it judges by what it sees, as ever. So
what somebody earns less with it is what the answers are worth to them: nothing to the script `deaf`, which hears none.
Adds what the warm-up and RL made of each seed to `benchmarks/results/matching_game/listening.json`, and writes how the
scripts play the games with their partner to `baselines.json` beside it."""

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness.episodes import MODES, finished_episodes
from benchmarks.harness.runs import ROOT, Job, finish
from benchmarks.learning.matching_game import RECIPE
from slimrl.commands.eval import MODEL, SCRIPTED, slug_of
from slimrl.io.files import without_nan
from slimrl.io.run_dir import step_directories
from slimrl.stats import estimate_mean, paired_difference
from slimrl.types import Rollout

CONFIG = ROOT / "examples" / "matching_game" / "eval.toml"
MUTE = ROOT / "benchmarks" / "learning" / "matching_mute.py"
BASELINES = ["script:deaf", "script:planner"]
STAGES = {"start": ("after the warm-up", "warmup/weights"), "final": ("after RL", "weights")}
SCORES = ("optimum", "distinct_questions")


def worth_of_answers(told: list[Rollout], mute: list[Rollout]) -> dict[str, Any]:
    """Reward with and without answers, the paired difference over games, and means of the other scores."""
    others = {rollout.task_id: rollout for rollout in mute}
    pairs = [(rollout, others[rollout.task_id]) for rollout in told if rollout.task_id in others]
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


def play(run: Path, *flags: str) -> Path:
    """An evaluation, which is made if it is not there."""
    argv = ["@", str(CONFIG), *flags, "--output_dir", str(run)]
    finish(Job("eval", argv, run, "results.json"), resume=True)
    return run


def listening_of(run: Path, mute_runs: Path) -> dict[str, Any]:
    """What answers are worth to a seed after the warm-up and after RL. The scripts play the mute games of each, too."""
    found = {}
    for stage, (called, weights) in STAGES.items():
        model = step_directories(run / weights)[-1]
        flags = ("--model.name", str(model), "--env.0.id", f"{MUTE}:Mute", "--baselines", json.dumps(BASELINES))
        mute = play(mute_runs / f"{run.name}_{stage}", *flags)
        for mode in MODES:
            episodes = finished_episodes(run, stage, mode), finished_episodes(mute, MODEL, mode)
            found[f"{run.name}, {called}, {mode}"] = worth_of_answers(*episodes)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("outputs/matching_game_seeds"), help="where the runs are")
    arguments = parser.parse_args()
    others = arguments.runs / "listening"
    told = play(others / "scripts", "--temperatures", "[0.0]")
    shutil.copy(told / "results.json", RECIPE.results / "baselines.json")
    path = RECIPE.results / "listening.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for seed in arguments.seeds:
        results |= listening_of(arguments.runs / f"seed_{seed}", others)
    mute = others / f"seed_{arguments.seeds[-1]}_final"
    for name in BASELINES:
        results[name] = worth_of_answers(*(finished_episodes(run, slug_of(name), SCRIPTED) for run in (told, mute)))
    path.write_text(json.dumps(without_nan(results), indent=1) + "\n")
    for who, row in results.items():
        worth, means = row["difference"], " and ".join(f"{name} {row[name]['mean']:.3f}" for name in ("told", "mute"))
        interval = "" if worth["low"] is None else f" ({worth['low']:.3f} to {worth['high']:.3f})"
        print(f"{who}: {means}; answers are worth {worth['mean']:.3f}{interval}")


if __name__ == "__main__":
    main()
