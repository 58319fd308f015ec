"""What does an environment cost that comes by another door? reverse-text natively, from a file with a function as
reward, and as a taskset of verifiers.

    python -m benchmarks.speed.adapters                            the first two
    python -m benchmarks.speed.adapters --id verifiers:MODULE      and another door, with the same tasks and replies

The episodes of a step are made, started, stepped once and closed at once, where a run has them: the last two in a
process of their own. Nothing is sampled, so that the environment's part is all that is timed. It is set against a step
of `examples/reverse_text/rl.toml`, which is run for a few. Writes `benchmarks/results/adapters.json`.
"""

import argparse
import asyncio
import difflib
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from benchmarks.harness.runs import ROOT, Job, finish
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.environments.reverse_text import INSTRUCTION, TAGS
from slimrl.io.text import spans_between
from slimrl.monitor.sinks import read_metrics
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.loop import run_episodes
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.taskset import load_in_worker
from slimrl.types import Task, Taskset

NATIVE = "reverse-text"
FUNCTION = "dataset with a function"
REPLY = "<reversed_text>abc</reversed_text>"
WARM_UP = 3
TIMEOUT_S = 60.0


def similarity(reply: str, task: Task) -> float:
    """The reward of reverse-text, as a function of a user's."""
    answer, right = next(spans_between(reply, *TAGS), None), str(task.data["answer"])
    given = reply[slice(*answer)].strip() if answer else ""
    return difflib.SequenceMatcher(None, given, right, autojunk=False).ratio() if answer else 0.0


async def play(taskset: Taskset, task: Task) -> float:
    """The reward of one episode."""
    environment = taskset.environment(task)
    await start_episode(environment)
    turn = await step_episode(environment, REPLY)
    await close_episode(environment)
    assert turn.done
    return turn.reward


def measure(taskset: Taskset, tasks: Sequence[Task], num: int) -> dict[str, float]:
    """Milliseconds of the episodes of a step, the median of `num` of them, and the mean reward."""

    async def every() -> tuple[list[float], float]:
        seconds, reward = [], 0.0
        for _ in range(WARM_UP + num):
            began = time.perf_counter()
            reward = statistics.mean(await asyncio.gather(*(play(taskset, task) for task in tasks)))
            seconds.append(time.perf_counter() - began)
        return seconds[WARM_UP:], reward

    seconds, reward = run_episodes(every())
    return {"median_ms": 1e3 * statistics.median(seconds), "mean_reward": reward}


def rows_of(texts: Sequence[str]) -> list[dict[str, Any]]:
    """The tasks as the rows of a file."""
    return [
        {
            "prompt": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text}],
            "answer": text[::-1],
            "text": text,
        }
        for text in texts
    ]


def in_worker(env_id: str, args: Mapping[str, Any]) -> Taskset:
    source = Source(env_id, dict(args), TIMEOUT_S)
    return load_in_worker(source)


def step_seconds(directory: Path, steps: int) -> float:
    """The median time of a step of the native recipe."""
    flags = ["--warmup.max_steps", "1", "--eval.num_examples", "2", "--output_dir", str(directory)]
    config = str(ROOT / "examples" / "reverse_text" / "rl.toml")
    finish(Job("rl", ["@", config, "--max_steps", str(steps), *flags], directory))
    records = read_metrics(directory / "metrics.jsonl")
    return statistics.median(metrics["time/step_s"] for _, metrics in records if "time/step_s" in metrics)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures each door and a step, prints a table and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", action="append", default=[], help="another door to the same task")
    parser.add_argument("--episodes", type=int, default=64, help="episodes of a step")
    parser.add_argument("--num", type=int, default=30, help="times to measure them")
    parser.add_argument("--steps", type=int, default=4, help="steps of the recipe to measure")
    arguments = parser.parse_args(argv)
    machine = machine_facts()
    native = load_taskset(NATIVE, {})
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        rows = rows_of([task.data["text"] for task in tasks_of(native, "train")])
        (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        reward = "benchmarks.speed.adapters:similarity"
        args = {"path": str(directory / "rows.jsonl"), "test_share": 0.0, "reward": reward}
        tasksets = {NATIVE: native, FUNCTION: in_worker("dataset", args)}
        tasksets |= {env_id: in_worker(env_id, {}) for env_id in arguments.id}
        tasks = {name: {one.data["text"]: one for one in tasks_of(own, "train")} for name, own in tasksets.items()}
        texts = sorted(set.intersection(*(set(own) for own in tasks.values())))
        drawn = [texts[number % len(texts)] for number in range(arguments.episodes)]
        doors = {
            name: measure(own, [tasks[name][text] for text in drawn], arguments.num) for name, own in tasksets.items()
        }
        step_s = step_seconds(directory / "run", arguments.steps)
    for door in doors.values():
        door["share_of_step"] = (door["median_ms"] - doors[NATIVE]["median_ms"]) / (1e3 * step_s)
    table = [
        [name, f"{door['median_ms']:.1f}", f"{door['share_of_step']:.2%}", f"{door['mean_reward']:.3f}"]
        for name, door in doors.items()
    ]
    print(markdown_table(["door", f"ms for {arguments.episodes} episodes", "more of a step", "mean reward"], table))
    content = {"episodes": arguments.episodes, "step_s": step_s, "doors": doors}
    write_result(RESULTS / "adapters.json", machine, content, {})


if __name__ == "__main__":
    main()
