"""Which tasks of reasoning-gym a small model can learn: the reward of the model as it comes, and after ten minutes.

`uv run --extra reasoning-gym python -m benchmarks.learning.reasoning_gym_table`: evaluates the model on held-out
questions of every task, a few tasks at a time, and writes `benchmarks/results/reasoning_gym_tasks.json`. With
`--train 8` it also trains each task that is named for so many steps, after two supervised ones on the package's own
answers (about ten minutes for each on one core). What is in the file already is left out.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import slimrl
from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from slimrl.environments.base import SUCCESS
from slimrl.environments.reasoning_gym.part import task_names
from slimrl.errors import UserError
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout

SCHEME = "reasoning-gym:"
STOP = ["</answer>"]
AT_A_TIME = 13
WARM_UP = {"max_steps": 2, "batch_size": 16, "optim": {"lr": 1e-4}, "schedule": {"type": "constant", "warmup_steps": 2}}
NUM_TRAINED = 50  # held-out questions of a task that is trained
STAGES = ("base model", "after warm-up", "after RL")
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
    """The held-out reward in a task, sampled at temperature 1, at each stage of a run of the recipe's settings."""
    began = time.monotonic()
    result = slimrl.rl(
        str(ROOT / "examples" / "reasoning_gym" / "rl.toml"),
        model={"name": arguments.model, "num_threads": arguments.threads},
        orchestrator={
            "env": [{"id": f"{SCHEME}{name}", "args": {"answer_format": arguments.answer_format}}],
            "sampling": {"max_tokens": arguments.max_tokens, "stop": STOP},
        },
        warmup=WARM_UP,
        eval={"num_examples": NUM_TRAINED, "temperatures": [1.0]},
        max_steps=arguments.train,
        seq_len=arguments.seq_len,
        output_dir=str(directory),
    )
    found: Row = {"steps": arguments.train, "minutes": round((time.monotonic() - began) / 60, 1)}
    for stage, modes in result.held_out.items():
        (mean,) = modes.values()
        found[stage] = [round(mean.mean, 4), round(mean.low, 4), round(mean.high, 4)]
    last = read_rollouts(directory / "held_out" / "final_sampled.jsonl")
    return found | {"exact after RL": summarize([record.rollout for record in last])["exact"]}


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


def table(content: dict[str, Any]) -> str:
    """The tasks for `docs/reasoning_gym.md`, those that were trained first."""
    rows = []
    for name, row in sorted(
        content["tasks"].items(), key=lambda item: ("trained" not in item[1], -item[1].get("reward", -1.0), item[0])
    ):
        shown = [f"{row[key]:.2f}" if key in row else "-" for key in ("reward", "exact", "answered")]
        trained = row.get("trained", {})
        stages = ["{:.2f} ({:.2f} to {:.2f})".format(*trained[stage]) if stage in trained else "" for stage in STAGES]
        exact = f"{trained['exact after RL']:.2f}" if trained else ""
        minutes = f"{trained['minutes']:.0f}" if trained else ""
        rows.append([f"`{name}`", f"{row['num']}" if "num" in row else row["error"], *shown, *stages, exact, minutes])
    return markdown_table(
        ["task", "questions", "reward", "exact", "answered", *STAGES, "exact after RL", "minutes"], rows
    )


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
    parser.add_argument("--output", type=Path, default=RESULTS / "reasoning_gym_tasks.json")
    arguments = parser.parse_args()
    facts, path = machine_facts(), arguments.output
    settings = {name: getattr(arguments, name) for name in ("model", "num", "answer_format", "max_tokens", "seq_len")}
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"settings": settings, "tasks": {}}
    if content["settings"] != settings:
        raise SystemExit(f"{path} was made with {content['settings']}: remove it, or use the same settings.")
    tasks: dict[str, Row] = content["tasks"]
    names = arguments.tasks or task_names()
    private = {str(arguments.runs): "RUNS"}
    for few in batched([name for name in names if name not in tasks], AT_A_TIME):
        try:
            tasks |= evaluate(few, arguments, arguments.runs / few[0])
        except UserError as error:
            tasks |= {name: {"error": str(error)} for name in few}
        write_result(path, facts, {"settings": settings, "tasks": dict(sorted(tasks.items()))}, private)
    for name in names if arguments.train else []:
        if "trained" not in tasks[name]:
            tasks[name]["trained"] = train(name, arguments, arguments.runs / f"{name}_trained")
            print(name, tasks[name])
            write_result(path, facts, {"settings": settings, "tasks": dict(sorted(tasks.items()))}, private)


def batched(names: list[str], size: int) -> list[list[str]]:
    """The names in lists of at most `size`."""
    return [names[start : start + size] for start in range(0, len(names), size)]


if __name__ == "__main__":
    main()
