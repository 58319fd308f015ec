"""What does an environment cost that comes by another door? reverse-text, natively and as a taskset of verifiers.

    python -m benchmarks.speed.adapters                            natively
    python -m benchmarks.speed.adapters --id verifiers:MODULE      and by this door, with the same tasks and replies

An episode is made, started, stepped once and closed. Nothing is sampled, so that the environment's part is all that is
timed, by the processor's clock: other programs on the machine do not count. Writes `benchmarks/results/adapters.json`.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from slimrl.environments.base import Taskset
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.rollout.answers import close_episode, start_episode, step_episode
from slimrl.rollout.loop import run_episodes
from slimrl.types import Task

NATIVE = "reverse-text"
REPLY = "<reversed_text>abc</reversed_text>"
WARM_UP = 20


async def play(taskset: Taskset, task: Task) -> float:
    """The reward of one episode."""
    environment = taskset.environment(task)
    await start_episode(environment)
    turn = await step_episode(environment, REPLY)
    await close_episode(environment)
    assert turn.done
    return turn.reward


def measure(taskset: Taskset, tasks: Sequence[Task], num: int) -> dict[str, float]:
    """Milliseconds of the processor for an episode, over `num` of them, and their mean reward."""

    async def every() -> tuple[list[float], list[float]]:
        seconds, rewards = [], []
        for number in range(WARM_UP + num):
            began = time.process_time()
            rewards.append(await play(taskset, tasks[number % len(tasks)]))
            seconds.append(time.process_time() - began)
        return seconds[WARM_UP:], rewards[WARM_UP:]

    seconds, rewards = run_episodes(every())
    return {"median_ms": 1e3 * statistics.median(seconds), "mean_reward": statistics.mean(rewards)}


def main(argv: Sequence[str] | None = None) -> None:
    """Measures each door, prints a table and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--id", action="append", default=[], help="another door to the same task")
    parser.add_argument("--num", type=int, default=200, help="episodes to time")
    arguments = parser.parse_args(argv)
    machine = machine_facts()
    tasksets = {env_id: load_taskset(env_id, {}) for env_id in [NATIVE, *arguments.id]}
    tasks = {env_id: {one.data["text"]: one for one in tasks_of(own, "train")} for env_id, own in tasksets.items()}
    texts = sorted(set.intersection(*(set(own) for own in tasks.values())))
    doors = {
        env_id: measure(own, [tasks[env_id][text] for text in texts], arguments.num) for env_id, own in tasksets.items()
    }
    rows = [[env_id, f"{door['median_ms']:.3f}", f"{door['mean_reward']:.3f}"] for env_id, door in doors.items()]
    print(markdown_table(["door", "ms of the processor for an episode", "mean reward"], rows))
    write_result(RESULTS / "adapters.json", machine, {"episodes": arguments.num, "doors": doors}, {})


if __name__ == "__main__":
    main()
