"""Makes the outlines by which `slimrl plan` knows how long the rollouts of a recipe are, from runs that kept theirs.

    python -m benchmarks.learning.outlines RUN [RUN ...]

Each RUN is the directory of a run of one of the recorded recipes, of at least three steps; that the run's model was
warmed up as the recipe says is on whoever calls this. Writes `slimrl_tools/plan/outlines/NAME.json`: among the first
ten steps the one with the median of sampled tokens, without texts. The environment is played again with the same
replies, for the time that it takes.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.runs import ROOT
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import RLConfig
from slimrl.environments.find import load_taskset, tasks_of
from slimrl.models.prefix import common_prefix_length
from slimrl.monitor.rollouts import RolloutRecord, read_rollouts
from slimrl.types import Sample
from slimrl_tools.curves.reference import recognise
from slimrl_tools.plan.workload import rollout_sample, subject_of

OUTLINES = ROOT / "packages" / "tools" / "src" / "slimrl_tools" / "plan" / "outlines"
STEPS, REPLAYED = 10, 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    for run in parser.parse_args().runs:
        content = content_of(run)
        path = OUTLINES / f"{content['recipe']}.json"
        path.write_text(text_of(content), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(content['rollouts'])} rollouts, {path.stat().st_size // 1024} KiB")


def content_of(run: Path) -> dict[str, Any]:
    """What the file of a run's recipe holds. Exits if the run is of none, or too short."""
    config = read_run_config(run)
    if not isinstance(config, RLConfig) or (found := recognise(config)) is None:
        sys.exit(f"{run} is no run of a recorded recipe.")
    steps = [read_rollouts(path) for path in sorted((run / "rollouts").glob("step_*.jsonl"))[:STEPS]]
    if len(steps) < 3:
        sys.exit(f"{run} has {len(steps)} steps, and 3 are the fewest.")
    played = [[record for record in step if rollout_sample(record.rollout)] for step in steps]
    by_size = sorted(played, key=lambda step: sum(sum(record.rollout.loss_mask_T) for record in step))
    median = [record for record in by_size[len(by_size) // 2] if record.has_signal]
    num, num_useful = sum(map(len, played)), sum(record.has_signal for step in played for record in step)
    return {
        "recipe": found[0].name,
        "subject": subject_of(config),
        "seq_len": config.seq_len,
        "useless": round(1 - num_useful / num, 3),
        "env_s": round(environment_s(config, median), 4),
        "rollouts": outline_of([sample for record in median if (sample := rollout_sample(record.rollout))]),
    }


def outline_of(samples: Sequence[Sample]) -> list[list[int]]:
    """Return the outline of samples (`plan/workload.py`)."""
    rows: list[list[int]] = []
    for place, sample in enumerate(samples):
        shared, like = max(
            (
                (common_prefix_length(sample.token_ids_T, earlier.token_ids_T), number)
                for number, earlier in enumerate(samples[:place])
            ),
            default=(0, 0),
        )
        rows.append([like, shared, *(len([*part]) for _, part in itertools.groupby(sample.loss_mask_T))])
    return rows


def environment_s(config: RLConfig, records: Sequence[RolloutRecord]) -> float:
    """The median seconds that the environment takes for an episode, played again with the recorded replies."""
    env = config.orchestrator.env[0]
    taskset = load_taskset(env.id, env.args)
    ids = {record.rollout.task_id for record in records}
    tasks = {task.id: task for task in tasks_of(taskset, "train") if task.id in ids}

    async def play(record: RolloutRecord) -> float:
        replies = [message["content"] for message in record.rollout.messages if message["role"] == "assistant"]
        episode = taskset.environment(tasks[record.rollout.task_id])
        began = time.perf_counter()
        num_opening = sum(message["role"] == "assistant" for message in await episode.start())
        for reply in replies[num_opening:]:
            if (await episode.step(reply)).done:
                break
        return time.perf_counter() - began

    asyncio.run(play(records[0]))  # loads what is loaded at first use
    return statistics.median(asyncio.run(play(record)) for record in records[:REPLAYED])


def text_of(content: dict[str, Any]) -> str:
    """The JSON of a file, with a line for each member and each rollout, which a diff can show."""
    rest = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items() if key != "rollouts"]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in content["rollouts"])
    return "{\n" + ",\n".join([*rest, f' "rollouts": [\n{rows}\n ]']) + "\n}\n"


if __name__ == "__main__":
    main()
