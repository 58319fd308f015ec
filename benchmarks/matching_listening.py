"""Does a policy of the matching game listen? The same held-out games, with a partner that never knows a score.

`uv run python benchmarks/matching_listening.py --model outputs/matching_game/weights/step_14 --name "after RL"` plays
the games of `examples/matching_game/eval.toml` twice and adds to `benchmarks/results/matching_game/listening.json`. To
each question the mute partner says that it does not know; proposals it judges by what it sees, as ever. So what
somebody earns less with it is what the answers are worth to them: nothing to the script `deaf`, which hears none.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runs import ROOT, Job, finish
from slimrl.launch.evaluation import MODEL, SCRIPTED, slug_of
from slimrl.monitor.files import without_nan
from slimrl.monitor.rollouts import read_rollouts
from slimrl.monitor.stats import estimate_mean, paired_difference
from slimrl.types import Rollout

CONFIG = ROOT / "examples" / "matching_game" / "eval.toml"
MUTE = ROOT / "benchmarks" / "matching_mute.py"
RESULTS = ROOT / "benchmarks" / "results" / "matching_game" / "listening.json"
BASELINES = ["script:deaf", "script:planner"]
POLICY = {mode: f"{MODEL}_{mode}" for mode in ("greedy", "sampled")}
SCRIPTS = {name: f"{slug_of(name)}_{SCRIPTED}" for name in BASELINES}
SCORES = ("optimum", "distinct_questions")


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
    parser.add_argument("--name", required=True, help="what they are called in the results, as in `seed 0, after RL`")
    parser.add_argument("--runs", type=Path, default=Path("outputs/matching_listening"), help="where the runs go")
    arguments = parser.parse_args()
    always = ["@", str(CONFIG), "--model.name", arguments.model, "--baselines", json.dumps(BASELINES)]
    games = {"told": [], "mute": ["--env.0.id", f"{MUTE}:Mute"]}
    for name, flags in games.items():
        run = arguments.runs / name
        finish(Job("eval", [*always, *flags, "--output_dir", str(run)], run, "results.json"), resume=True)

    def found(file: str) -> dict[str, Any]:
        played = [read_rollouts(arguments.runs / name / "held_out" / f"{file}.jsonl") for name in games]
        return compared(*([record.rollout for record in records] for records in played))

    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {script: found(file) for script, file in SCRIPTS.items()}
    results |= {f"{arguments.name}, {mode}": found(file) for mode, file in POLICY.items()}
    results = without_nan(results)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for who, row in results.items():
        worth, means = row["difference"], " and ".join(f"{name} {row[name]['mean']:.3f}" for name in games)
        interval = "" if worth["low"] is None else f" ({worth['low']:.3f} to {worth['high']:.3f})"
        print(f"{who}: {means}; answers are worth {worth['mean']:.3f}{interval}")


if __name__ == "__main__":
    main()
