"""What becomes of a shared training when one of its processes ends, stops or cannot write: no other one waits."""

import time
from pathlib import Path

import pytest

from slimrl.monitor.sinks import read_metrics
from tests.ranks import ROOT, outputs_of, start_ranks

LOST = "another of the 2 ranks has ended or is stopped"
TALKS = """
import os
import sys
from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.launch.ranks import join_ranks

def expect_error(ranks, text, failing):
    try:
        with ranks.united():
            if ranks.rank == failing:
                raise UserError(text)
    except UserError as error:
        return str(error)

try:
    with join_ranks(os.environ, ModelConfig(device="cpu")) as (ranks, _):
        assert ranks.of_first(ranks.rank) == 0 and ranks.all_of(str(ranks.rank)) == ["0", "1"]
        assert ranks.sums([1.0, ranks.rank]) == [2.0, 1.0] and ranks.maxima([ranks.rank]) == [1.0]
        for failing, expected in enumerate((["no room", "rank 0 of 2 failed: no room"],
                                            ["rank 1 of 2 failed: no room", "no room"])):
            assert expect_error(ranks, "no room", failing) == expected[ranks.rank]
        assert expect_error(ranks, "no room", None) is None
        if ranks.rank == 1:
            os._exit(9)  # as one that is killed: no connection is closed in good order
        ranks.sums([1.0])
except UserError as error:
    print(error)
"""

STOPS = """
import os
import signal
from datetime import timedelta
from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.launch import ranks as launch

launch.TIMEOUT = timedelta(seconds=3)
try:
    with launch.join_ranks(os.environ, ModelConfig(device="cpu")) as (ranks, _):
        ranks.sums([1.0])
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.sums([1.0])
except UserError as error:
    print(error)
"""

LIMITED = """
import os
import resource
import sys
from slimrl.cli import run

full, size = int(sys.argv[1]), int(sys.argv[2])
if int(os.environ["RANK"]) == full:
    sys.dont_write_bytecode = True  # otherwise Python would leave the first part of a compiled module
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.exit(run(sys.argv[3:]))
"""


def trainer(tiny_dir: Path, output_dir: Path, max_steps: int) -> list[str]:
    flags = ["--model.name", str(tiny_dir), "--model.device", "cpu", "--max_steps", str(max_steps)]
    config = str(ROOT / "configs" / "debug" / "rl" / "train.toml")
    return ["trainer", "@", config, *flags, "--ckpt.interval_steps", "0", "--output_dir", str(output_dir)]


@pytest.mark.nightly
def test_processes_share_errors_and_end_when_one_is_gone() -> None:
    processes = start_ranks(2, ["-c", TALKS])
    first, second = outputs_of(processes)
    assert processes[0].returncode == 0 and LOST in first, first
    assert processes[1].returncode == 9 and not second, second


@pytest.mark.nightly
def test_a_rank_that_is_stopped_is_not_waited_for_for_ever() -> None:
    first, stopped = start_ranks(2, ["-c", STOPS])
    try:
        (output,) = outputs_of([first])
    finally:
        stopped.kill()
        stopped.communicate()
    assert LOST in output


@pytest.mark.nightly
def test_a_rank_that_is_killed_in_a_step_ends_the_others(tmp_path: Path, tiny_dir: Path) -> None:
    processes = start_ranks(2, ["-c", LIMITED, "-1", "0", *trainer(tiny_dir, tmp_path, 100_000)])
    metrics = tmp_path / "metrics.jsonl"
    try:
        until = time.monotonic() + 100
        while not metrics.exists() or len(read_metrics(metrics)) < 3:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        processes[1].kill()
        output, _ = outputs_of(processes)
    assert processes[0].returncode == 2 and LOST in output, output


@pytest.mark.nightly
def test_all_ranks_say_why_when_one_cannot_write(tmp_path: Path, tiny_dir: Path) -> None:
    # More than the weights and less than a shard, so that the writing of shards fails in the leading process alone.
    processes = start_ranks(2, ["-c", LIMITED, "0", "200_000", *trainer(tiny_dir, tmp_path, 1)])
    for process, output in zip(processes, outputs_of(processes), strict=True):
        assert process.returncode == 2, output
        assert f"could not write {tmp_path / 'checkpoints' / 'step_1'}" in output and "File too large" in output, output
    assert not [*(tmp_path / "checkpoints").iterdir()] and (tmp_path / "weights" / "step_1").is_dir()
