"""Makes small runs, as a run itself writes them."""

import json
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slimrl.io.files import encode_line
from slimrl.io.http_access import Access
from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, rollout_to_json, write_rollouts
from slimrl.types import Message, Rollout
from slimrl_view.api import Api
from slimrl_view.runs import open_runs
from slimrl_view.server import Server, bind
from slimrl_view.shown import Run, bring_up_to_date, open_run

CONFIG = """\
# slimrl rl @ config.toml
max_steps = 3  # --max_steps
output_dir = "outputs/a"
seed = {seed}

[model]
name = "tiny"

[[orchestrator.env]]
id = "reverse-text"
args = {{min_length = 4}}

[trainer.loss]
type = "grpo"
"""


def record_of(
    task: str, reply: str = "two words", reward: float = 0.5, advantage: float = 0.0, **more: Any
) -> RolloutRecord:
    """A rollout of one turn: a prompt of two tokens, a reply of three."""
    messages: list[Message] = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": reply}]
    failed = bool(more.get("failure"))
    values: dict[str, Any] = {
        "task_id": task,
        "token_ids_T": (5, 6, 7, 8, 9),
        "loss_mask_T": (False, False, True, True, True),
        "logprobs_T": (0.0, 0.0, -0.5, -0.25, -1.5),
        "versions_T": (-1, -1, 4, 4, 5),
        "reward": math.nan if failed else reward,
        "turn_rewards": () if failed else (reward,),
        "messages": tuple(messages),
        "metrics": {"exact": float(reward == 1.0), "turns": 1.0},
        **more,
    }
    text = f"<user>a question<assistant>{reply}"
    return RolloutRecord(Rollout(**values), (advantage,), text, has_signal=advantage != 0.0)


def write_step(run: Path, step: int, records: Sequence[RolloutRecord]) -> Path:
    """Write a step's rollouts."""
    path = RunDir(run).rollouts_of(step)
    write_rollouts(path, records)
    return path


def write_held_out(run: Path, name: str, records: Sequence[RolloutRecord]) -> Path:
    """Write an evaluation's rollouts."""
    path = run / "held_out" / f"{name}.jsonl"
    write_rollouts(path, records)
    return path


def line_of(record: RolloutRecord) -> bytes:
    """A rollout as a line of its file."""
    return encode_line(rollout_to_json(record), digest=True)


def make_run(run: Path, seed: int = 0) -> Path:
    """A run of two steps with two groups of two rollouts each, and an evaluation before and after."""
    run.mkdir(parents=True)
    (run / "config.toml").write_text(CONFIG.format(seed=seed))
    lines = [{"step": 0, "reward/mean": 0.25, "held_out/reward_greedy": 0.0}, {"step": 1, "reward/mean": 0.75}]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for step in (0, 1):
        good = [record_of("train/a", f"wow {n} at {step}", float(n), n - 0.5) for n in (0, 1)]
        flat = [
            record_of("train/b", '<tool>search("x")</tool>', 0.25),
            record_of("train/b", reward=0.25, failure="timeout"),
        ]
        write_step(run, step, good + flat)
    write_held_out(run, "start_greedy", [record_of("reverse-text/test/a", reward=0.0)])
    write_held_out(run, "final_greedy", [record_of("reverse-text/test/a", "better", 1.0)])
    return run


def opened(path: Path) -> Run:
    """A run with its index, as the viewer opens it."""
    return open_run(open_runs([str(path)])[0])


def indexed(path: Path) -> Run:
    """A run with its index up to date."""
    run = opened(path)
    refresh(run)
    return run


def refresh(run: Run) -> None:
    """Read what is new in a run's files."""
    bring_up_to_date(run, threading.Event())
    assert run.problem == ""


@contextmanager
def bound(*runs: Run, key: str = "") -> Iterator[Server]:
    """A server that answers inside the block."""
    server = bind(0, Api(runs), Access(key, "SLIMRL_API_KEY"), is_chosen=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
