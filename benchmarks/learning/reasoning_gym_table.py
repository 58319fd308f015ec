"""Which tasks of reasoning-gym a small model can learn: the reward of the model as it comes, and after some training.

`uv run --extra reasoning-gym python -m benchmarks.learning.reasoning_gym_table`: evaluates the model on held-out
questions of every task, a few tasks at a time, and writes `benchmarks/results/reasoning_gym_base.json`. With
`--train 45` it trains each task for so many steps instead, with the settings of `examples/reasoning_gym/rl.toml` (about
ten minutes for each on two cores), and writes `reasoning_gym_trained.json`. Tasks that are in the file are left out.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import slimrl
from benchmarks.harness.measure import RESULTS, ROOT
from slimrl.environments.base import SUCCESS
from slimrl.environments.reasoning_gym.part import task_names
from slimrl.errors import UserError
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout

SCHEME = "reasoning-gym:"
STOP = ["</answer>"]
AT_A_TIME = 13
Row = dict[str, Any]


def evaluate(names: list[str], arguments: argparse.Namespace, directory: Path) -> dict[str, Row]:
    """The base model's held-out reward in some tasks, sampled at temperature 1, by the name of the task."""
    args = {"num_test": arguments.num, "answer_format": arguments.answer_format}
    environments = [{"id": f"{SCHEME}{name}", "name": name, "worker": "none", "args": args} for name in names]
    slimrl.evaluate(
        model={"name": arguments.model, "num_threads": arguments.threads},
        env=environments,
        num_examples=arguments.num,
        temperatures=[1.0],
        seq_len=arguments.seq_len,
        sampling={"max_tokens": arguments.max_tokens, "stop": STOP},
        output_dir=str(directory),
    )
    found: dict[str, list[Rollout]] = {name: [] for name in names}
    for record in read_rollouts(directory / "held_out" / "eval_sampled.jsonl"):
        found[record.rollout.task_id.split("/")[-2]].append(record.rollout)
    return {name: summarize(rollouts) for name, rollouts in found.items()}


def train(name: str, arguments: argparse.Namespace, directory: Path) -> Row:
    """The held-out reward in a task before and after training."""
    result = slimrl.rl(
        str(ROOT / "examples" / "reasoning_gym" / "rl.toml"),
        model={"name": arguments.model, "num_threads": arguments.threads},
        orchestrator={"env": [{"id": f"{SCHEME}{name}"}]},
        max_steps=arguments.train,
        output_dir=str(directory),
    )
    return {stage: {mode: found.mean for mode, found in modes.items()} for stage, modes in result.held_out.items()}


def summarize(rollouts: list[Rollout]) -> Row:
    """Means over the episodes that were played; `num` counts them."""
    played = [rollout for rollout in rollouts if not rollout.failure]
    if not played:
        return {"num": 0}
    return {
        "num": len(played),
        "reward": round(sum(rollout.reward for rollout in played) / len(played), 4),
        "exact": round(sum(rollout.reward >= SUCCESS for rollout in played) / len(played), 4),
        "answered": round(sum(rollout.metrics.get("answered", 0.0) for rollout in played) / len(played), 4),
        "context_full": round(sum(rollout.metrics.get("context_full", 0.0) for rollout in played) / len(played), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="names of tasks; all of them by default")
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train each task for so many steps")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--num", type=int, default=16, help="held-out questions of each task")
    parser.add_argument("--answer_format", choices=["tag", "lenient", "plain"], default="lenient")
    parser.add_argument("--max_tokens", type=int, default=64)
    parser.add_argument("--seq_len", type=int, default=768)
    parser.add_argument("--threads", type=int, default=1, help="threads of the model")
    parser.add_argument("--runs", type=Path, default=ROOT / "outputs" / "reasoning_gym_table")
    arguments = parser.parse_args()
    path = RESULTS / f"reasoning_gym_{'trained' if arguments.train else 'base'}.json"
    settings = {name: getattr(arguments, name) for name in ("model", "num", "answer_format", "max_tokens", "seq_len")}
    table: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"settings": settings, "tasks": {}}
    if table["settings"] != settings:
        raise SystemExit(f"{path} was made with {table['settings']}: remove it, or use the same settings.")
    left = [name for name in arguments.tasks or task_names() if name not in table["tasks"]]
    for start in range(0, len(left), 1 if arguments.train else AT_A_TIME):
        names = left[start : start + (1 if arguments.train else AT_A_TIME)]
        directory = arguments.runs / names[0]
        try:
            rows = (
                {names[0]: train(names[0], arguments, directory)}
                if arguments.train
                else evaluate(names, arguments, directory)
            )
        except UserError as error:
            rows = {name: {"error": str(error)} for name in names}
        table["tasks"] = dict(sorted((table["tasks"] | rows).items()))
        path.write_text(json.dumps(table, indent=1) + "\n")
        print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()
