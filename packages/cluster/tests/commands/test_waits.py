"""A part of a run waits for another one, or for a sampler at an address (docs/waits.md), and that stands still."""

import os
import signal
import time
from pathlib import Path

import pytest

from packages.cluster.tests.commands.test_processes import PARTS, Started, flags
from slimrl.io.process_tree import start_time
from tests.commands.standing_still import WAYS
from tests.commands.test_rl import rl_flags
from tests.commands.waiting import LIMIT_S, standing_server, waiting

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("way", WAYS)
def test_a_sampler_that_stands_still(way: str, tiny_dir: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    apart = ["--deployment.type", "processes", "--warmup.max_steps", "0"]
    with standing_server(way, asked) as address:
        words = rl_flags(tiny_dir, tmp_path / "out", *apart, "--inference.base_url", address)
        with waiting(words, tmp_path) as command:
            command.until(asked.exists)
            command.ends(way)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_run_that_a_signal_stops(part: str, tiny_dir: Path, tmp_path: Path) -> None:
    run = Started(flags(tiny_dir, tmp_path / "run", "--max_steps", "50"), tmp_path / "run.log")
    parts = run.pids()
    run.await_step(tmp_path / "run", 0)
    os.kill(parts[part], signal.SIGSTOP)
    time.sleep(2)
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(LIMIT_S) == 130 and "To continue from the last checkpoint" in run.said
    assert not any(start_time(pid) for pid in parts.values())


@pytest.mark.parametrize("command", ["trainer", "orchestrator"])
def test_a_part_whose_other_side_never_begins(command: str, tiny_dir: Path, tmp_path: Path) -> None:
    _, *words = flags(tiny_dir, tmp_path / "run", "--warmup.max_steps", "0")
    with waiting([command, *words, "--deployment.type", "processes"], tmp_path) as part:
        part.until(lambda: "wait" in part.said)
        part.ends()
