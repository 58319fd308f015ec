"""An `rl` run whose parts are processes: the same run as in one, whatever part is killed, and ended with a cause."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from slimrl.cli import run
from slimrl.io.process_tree import start_time
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics
from slimrl_cluster.transport.roster import file_members
from tests.commands.test_rl import STEPS, rl_flags
from tests.reproducible import is_reproducible

PARTS = ("trainer", "orchestrator", "sampler-0")


def flags(model: Path, output_dir: Path, *more: str) -> list[str]:
    return rl_flags(model, output_dir, "--eval.interval_steps", "3", "--plan", "refuse", *more)


class Started:
    """The command as a process, whose parts are processes by `deployment.type`, and whose output goes to a file."""

    def __init__(self, words: list[str], log: Path, deployment: str = "processes") -> None:
        self._log = log
        command = [sys.executable, "-m", "slimrl", *words, "--deployment.type", deployment]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait(self) -> int:
        return self.process.wait(300)

    def until(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + 240
        while not is_so():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def pids(self, num_starts: int = 1) -> dict[str, int]:
        """The ids of the parts, as the command says them at the `num_starts`th start of trainer and orchestrator."""
        pattern = r"processes: trainer (\d+), orchestrator (\d+), sampler-0 (\d+)"
        self.until(lambda: len(re.findall(pattern, self.said)) >= num_starts)
        return dict(zip(PARTS, map(int, re.findall(pattern, self.said)[num_starts - 1]), strict=True))

    def await_step(self, output_dir: Path, step: int) -> None:
        path = output_dir / "metrics.jsonl"
        self.until(lambda: path.exists() and any(number >= step for number, _ in read_metrics(path)))


def learned(output_dir: Path) -> list[tuple[int, dict[str, float]]]:
    """What was sampled and trained: the metrics that a placement must not change but for rounding."""
    names = ("reward/", "rollout/", "loss/tokens", "drop/", "held_out/")
    lines = read_metrics(output_dir / "metrics.jsonl")
    return [
        (step, {key: value for key, value in metrics.items() if is_reproducible(key) and key.startswith(names)})
        for step, metrics in lines
    ]


@pytest.fixture(scope="module")
def alone(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    output_dir = tmp_path_factory.mktemp("alone") / "run"
    assert run(flags(tiny_dir, output_dir)) == 0
    return output_dir


@pytest.fixture(scope="module")
def apart(tiny_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in three processes, each of which is killed, and which goes on by itself."""
    output_dir = tmp_path_factory.mktemp("apart") / "run"
    run = Started(flags(tiny_dir, output_dir), output_dir.with_suffix(".log"))
    parts = [run.pids()]
    for step, victim in enumerate(("sampler-0", "orchestrator", "trainer")):
        run.await_step(output_dir, step)
        os.kill(parts[-1][victim], signal.SIGKILL)
        if victim == "sampler-0":
            run.until(lambda: "started sampler-0 again, as" in run.said)
        else:
            parts.append(run.pids(len(parts) + 1))
    assert run.wait() == 0, run.said
    for victim, pid in (
        ("sampler-0", parts[0]["sampler-0"]),
        ("orchestrator", parts[0]["orchestrator"]),
        ("trainer", parts[1]["trainer"]),
    ):
        assert f"the {victim} (process {pid}) was ended by SIGKILL" in run.said
    assert run.said.count("trainer and orchestrator go on from the last checkpoint") == 2
    assert parts[1]["sampler-0"] == parts[2]["sampler-0"]  # samplers stay
    assert not any(start_time(pid) for start in parts for pid in start.values())
    return output_dir


@pytest.mark.slow
def test_three_processes_do_what_one_does(alone, tiny_dir, tmp_path):
    started = Started(flags(tiny_dir, tmp_path / "run"), tmp_path / "log")
    assert started.wait() == 0, started.said
    assert learned(tmp_path / "run") == learned(alone)


@pytest.mark.nightly
def test_three_processes_that_are_killed_do_what_one_does(alone, apart):
    assert learned(apart) == learned(alone)
    summary = json.loads((apart / "summary.json").read_text(encoding="utf-8"))
    assert summary["predicted"]["peak_gb"] > 0 and (apart / "training.png").exists()


@pytest.mark.nightly
def test_a_run_whose_rl_was_killed_is_resumed(alone, tiny_dir, tmp_path):
    output_dir = tmp_path / "run"
    first = Started(flags(tiny_dir, output_dir), tmp_path / "first.log")
    parts = first.pids()
    first.await_step(output_dir, 1)
    os.kill(first.process.pid, signal.SIGKILL)
    first.wait()
    deadline = time.monotonic() + 30
    while any(start_time(pid) for pid in parts.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(start_time(pid) for pid in parts.values())
    # By its own file, which has every setting.
    second = Started(["rl", "@", str(output_dir / "config.toml"), "--resume"], tmp_path / "second.log")
    assert second.wait() == 0, second.said
    assert learned(output_dir) == learned(alone)


@pytest.mark.nightly
def test_two_samplers_learn_what_one_does(alone, tiny_dir, tmp_path):
    run = Started(flags(tiny_dir, tmp_path / "run", "--deployment.num_samplers", "2"), tmp_path / "run.log")
    run.await_step(tmp_path / "run", 0)
    found = re.search(r"sampler-1 (\d+)", run.said)
    assert found and len(file_members(RunDir(tmp_path / "run"), "inference")) == 2
    os.kill(int(found.group(1)), signal.SIGKILL)
    assert run.wait() == 0, run.said
    assert learned(tmp_path / "run") == learned(alone)


@pytest.mark.nightly
def test_two_trainer_ranks_learn_what_one_process_does(alone, tiny_dir, tmp_path):
    run = Started(flags(tiny_dir, tmp_path / "run", "--deployment.num_trainers", "2"), tmp_path / "run.log")
    assert run.wait() == 0, run.said
    assert [step for step, _ in learned(tmp_path / "run")] == [step for step, _ in learned(alone)]
    lines = {step: metrics for step, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl") if step < STEPS}
    for step, metrics in read_metrics(alone / "metrics.jsonl"):
        if step < STEPS:
            assert lines[step]["loss/tokens"] == pytest.approx(metrics["loss/tokens"], rel=0.5)
            assert lines[step]["guard/mismatch_kl"] < 1e-6


@pytest.mark.nightly
def test_a_part_that_refuses_its_settings_ends_the_run_at_once(tiny_dir, tmp_path):
    run = Started(flags(tiny_dir, tmp_path / "run", "--seq_len", "99999"), tmp_path / "run.log")
    assert run.wait() == 2 and "positions that" in run.said and "(process" in run.said
    assert "again" not in run.said and "go on from" not in run.said


@pytest.mark.nightly
def test_a_stopped_sampler_is_named_within_its_time_out(tiny_dir, tmp_path):
    run = Started(
        flags(tiny_dir, tmp_path / "run", "--inference.timeout_s", "3", "--max_steps", "50"), tmp_path / "run.log"
    )
    parts = run.pids()
    run.await_step(tmp_path / "run", 0)
    os.kill(parts["sampler-0"], signal.SIGSTOP)
    began = time.monotonic()
    assert run.wait() == 2 and "the sampler at http://127.0.0.1:" in run.said and time.monotonic() - began < 60
    assert not any(start_time(pid) for pid in parts.values())


@pytest.mark.nightly
def test_ctrl_c_ends_all_and_says_how_to_continue(tiny_dir, tmp_path):
    run = Started(flags(tiny_dir, tmp_path / "run", "--max_steps", "50"), tmp_path / "run.log")
    parts = run.pids()
    run.await_step(tmp_path / "run", 0)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130 and "To continue from the last checkpoint" in run.said
    assert not any(start_time(pid) for pid in parts.values())
