"""Which tasks of reasoning-gym a small model can learn: the reward of the model as it comes, and after ten minutes.

`uv run --extra reasoning-gym python -m benchmarks.learning.reasoning_gym_table`: evaluates the model on held-out
questions of every task, a few tasks at a time, tries answers that ignore the question, and writes
`benchmarks/results/reasoning_gym_tasks.json`. With `--train 8` it also trains each task that is named for so many
steps, after two supervised ones on the package's own answers (5 to 12 minutes for each on one core). What is in the
file already is left out.
"""

import argparse
import asyncio
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import slimrl
from benchmarks.harness.measure import RESULTS, ROOT, machine_facts, markdown_table, write_result
from slimrl.environments.base import SUCCESS
from slimrl.environments.find import load_taskset
from slimrl.errors import UserError
from slimrl.monitor.rollouts import read_rollouts
from slimrl.types import Rollout, Task
from slimrl_envs.reasoning_gym.part import task_names

SCHEME = "reasoning-gym:"
STOP = ["</answer>"]
AT_A_TIME = 13
WARM_UP = {"max_steps": 2, "batch_size": 16, "optim": {"lr": 1e-4}, "schedule": {"type": "constant", "warmup_steps": 2}}
NUM_TRAINED = 50  # held-out questions of a task that is trained
STAGES = ("base model", "after warm-up", "after RL")
IDLE = 0.01  # reward below which a task stands in the list of the others
NUM_BLIND = 25  # questions on which answers are tried that ignore the question
FIRST, NUMBER = "FIRST", re.compile(r"-?\d+")  # the first number of the question
BLIND = (
    FIRST, "0", "1", "2", "3", "-1", "0.5", "yes", "no", "Yes", "No", "True", "False", "A", "B", "C", "a", "the",
    "None", "[]", "[0]", "()", "-", "x", "0 0", "0 1", "0, 0", "1, 2, 3", "1/2", "left", "right", "north",
)  # fmt: skip
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


def best_blind_answer(name: str) -> Row:
    """The answer that earns most, on average over some questions, of those that do not depend on the question."""
    taskset = load_taskset(f"{SCHEME}{name}", {"num_train": NUM_BLIND, "num_test": 1})
    tasks = list(taskset.tasks("train"))

    async def reward(task: Task, reply: str) -> float:
        episode = taskset.environment(task)
        await episode.start()
        return float((await episode.step(reply)).reward)

    def earned(reply: str) -> float:
        numbers = [NUMBER.findall(task.data["question"]) or ["0"] for task in tasks]
        replies = [f"<answer>{reply.replace(FIRST, found[0])}</answer>" for found in numbers]
        return statistics.mean(asyncio.run(reward(task, said)) for task, said in zip(tasks, replies, strict=True))

    rewards = {reply: earned(reply) for reply in BLIND}
    best = max(rewards, key=rewards.__getitem__)
    return {"answer": best, "reward": round(rewards[best], 4)}


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
    """The tasks for `docs/reasoning_gym.md`, those that were trained first; those that pay nothing in one line."""
    rows, idle = [], []
    for name, row in sorted(
        content["tasks"].items(), key=lambda item: ("trained" not in item[1], -item[1].get("reward", -1.0), item[0])
    ):
        blind, trained = row.get("blind", {"answer": "", "reward": 0.0}), row.get("trained", {})
        if not trained and max(blind["reward"], row.get("reward", 0.0)) < IDLE:
            idle.append(f"`{name}`" if row.get("num") else f"`{name}` ({row.get('error', 'no question fits')})")
            continue
        shown = [str(row["num"]), *(f"{row[key]:.2f}" for key in ("reward", "exact", "answered"))]
        answer = "the first number" if blind["answer"] == FIRST else f"`{blind['answer']}`"
        shown.append(f"{blind['reward']:.2f} ({answer})" if blind["reward"] else "")
        stages = ["{:.2f} ({:.2f} to {:.2f})".format(*trained[stage]) if stage in trained else "" for stage in STAGES]
        last = [f"{trained['exact after RL']:.2f}", f"{trained['minutes']:.0f}"] if trained else ["", ""]
        rows.append([f"`{name}`", *shown, *stages, *last])
    head = ["task", "questions", "reward", "exact", "answered", "blind", *STAGES, "exact after RL", "minutes"]
    return f"{markdown_table(head, rows)}\n\nBelow {IDLE} in reward and blind: {', '.join(sorted(idle))}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="names of tasks; all of them by default")
    parser.add_argument("--train", type=int, default=0, metavar="STEPS", help="train each task for so many steps")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--num", type=int, default=16, help="held-out questions of each task")
    parser.add_argument("--answer_format", choices=["tag", "lenient"], default="lenient")
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
    for name in [name for name in names if "blind" not in tasks[name]]:
        tasks[name]["blind"] = best_blind_answer(name)
        print(name, tasks[name]["blind"], flush=True)
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
