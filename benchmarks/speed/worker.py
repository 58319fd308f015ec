"""What does a worker process cost? Episodes of reverse-text in the run's own process and in one of their own.

`uv run python -m benchmarks.speed.worker`: an episode is made, started, stepped once and closed, which are four calls,
with the checks that the agent loop makes. Nothing is sampled, so that the environment's part is all that is timed.
Writes `benchmarks/results/worker.json`.
"""

import argparse
import statistics
import time
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.failures import run_with_timeout
from slimrl.rollout.loop import run_episodes
from slimrl.rollout.worker.process import Source
from slimrl.rollout.worker.taskset import load_in_worker
from slimrl.types import Task, Taskset

ENVIRONMENT, ARGS = "reverse-text", {"style": "code", "min_length": 4, "max_length": 10}
TIMEOUT_S = 60.0


async def play(taskset: Taskset, task: Task) -> None:
    """One episode, each call into it limited as in a run."""

    async def make() -> Any:
        return taskset.environment(task)

    environment = await run_with_timeout(make(), "environment", TIMEOUT_S)
    await run_with_timeout(start_episode(environment), "environment", TIMEOUT_S)
    await run_with_timeout(step_episode(environment, "<reversed_text>abc</reversed_text>"), "environment", TIMEOUT_S)
    await run_with_timeout(close_episode(environment), "environment", TIMEOUT_S)


def microseconds(taskset: Taskset, num: int) -> dict[str, float]:
    """Microseconds of an episode, over `num` of them, one after the other."""
    tasks = tasks_of(taskset, "train")

    async def all_of_them() -> list[float]:
        seconds = []
        for number in range(num):
            began = time.perf_counter()
            await play(taskset, tasks[number % len(tasks)])
            seconds.append(time.perf_counter() - began)
        return seconds

    cuts = statistics.quantiles(run_episodes(all_of_them()), n=20)
    return {"median_us": 1e6 * cuts[9], "p5_us": 1e6 * cuts[0], "p95_us": 1e6 * cuts[-1]}


def start_seconds() -> float:
    """Seconds until a taskset in a new process has told its tasks."""
    began = time.perf_counter()
    source = Source(ENVIRONMENT, ARGS, TIMEOUT_S)
    taskset = load_in_worker(source)
    tasks_of(taskset, "train")
    return time.perf_counter() - began


def timed_tasks() -> float:
    """Seconds of making the same tasks in this process."""
    began = time.perf_counter()
    tasks_of(load_taskset(ENVIRONMENT, ARGS), "train")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=2000, help="episodes on each side")
    arguments = parser.parse_args()
    machine = machine_facts()
    source = Source(ENVIRONMENT, ARGS, TIMEOUT_S)
    tasksets: dict[str, Taskset] = {
        "own process": load_taskset(ENVIRONMENT, ARGS),
        "worker": load_in_worker(source),
    }
    sides = {name: microseconds(taskset, arguments.num) for name, taskset in tasksets.items()}
    started = [start_seconds() for _ in range(5)]
    here = sorted(timed_tasks() for _ in range(5))
    result = {
        "episodes": arguments.num,
        "sides": sides,
        "start_s": statistics.median(started),
        "start_own_process_s": statistics.median(here),
    }
    rows = [[name, *(f"{value:.0f}" for value in side.values())] for name, side in sides.items()]
    print(markdown_table(["an episode of four calls", "median, us", "5%", "95%"], rows))
    print(
        f"start of a worker with its tasks: {result['start_s']:.2f} s (in the run {result['start_own_process_s']:.2f})"
    )
    write_result(RESULTS / "worker.json", machine, result, {})


if __name__ == "__main__":
    main()
