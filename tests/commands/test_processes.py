"""An `rl` run whose parts are processes: the same run as in one, resumed after a kill, and ended with a cause."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.monitor.metrics import is_reproducible
from slimrl.monitor.sinks import read_metrics
from slimrl.services.process_tree import start_time
from tests.commands.test_rl import STEPS, rl_flags

pytestmark = pytest.mark.slow  # three processes load PyTorch each
PARTS = ("trainer", "orchestrator", "sampler")


def flags(model: Path, output_dir: Path, *more: str) -> list[str]:
    return rl_flags(model, output_dir, "--eval.interval_steps", "3", "--plan", "refuse", *more)


def start(words: list[str]) -> subprocess.Popen[str]:
    """The command as a process, with `deployment.type = "processes"`."""
    command = [sys.executable, "-m", "slimrl", *words, "--deployment.type", "processes"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


def await_step(output_dir: Path, step: int) -> None:
    """Wait until a step has been logged."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        path = output_dir / "metrics.jsonl"
        if path.exists() and any(number >= step for number, _ in read_metrics(path)):
            return
        time.sleep(0.05)
    raise AssertionError(f"step {step} was not reached")


def pids(process: subprocess.Popen[str]) -> dict[str, int]:
    """The ids of the parts, which the command says at its start."""
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r"trainer (\d+), orchestrator (\d+), sampler (\d+)", line):
            return dict(zip(PARTS, map(int, found.groups()), strict=True))
    raise AssertionError("no process ids")


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
    """The run in three processes, whose sampler and then whose orchestrator is killed, and which is then resumed."""
    output_dir = tmp_path_factory.mktemp("apart") / "run"
    process = start(flags(tiny_dir, output_dir))
    parts = pids(process)
    await_step(output_dir, 0)
    os.kill(parts["sampler"], signal.SIGKILL)
    await_step(output_dir, 2)
    os.kill(parts["orchestrator"], signal.SIGKILL)
    status, output = wait(process)
    assert status == 2 and "started the sampler again" in output
    assert re.search(rf"the orchestrator \(process {parts['orchestrator']}\) was ended by SIGKILL", output)
    assert not any(start_time(pid) for pid in parts.values())
    # By its own file, which has every setting: also the sampler of that start is started again.
    process = start(["rl", "@", str(output_dir / "config.toml"), "--resume"])
    parts = pids(process)
    await_step(output_dir, 3)
    os.kill(parts["sampler"], signal.SIGKILL)
    status, output = wait(process)
    assert status == 0, output
    return output_dir


def test_three_processes_do_what_one_does(alone, apart):
    assert learned(apart) == learned(alone)
    summary = json.loads((apart / "summary.json").read_text(encoding="utf-8"))
    assert summary["predicted"]["peak_gb"] > 0 and (apart / "training.png").exists()


def test_two_trainer_ranks_learn_what_one_process_does(alone, tiny_dir, tmp_path):
    status, output = wait(start(flags(tiny_dir, tmp_path / "run", "--deployment.num_trainers", "2")))
    assert status == 0, output
    assert [step for step, _ in learned(tmp_path / "run")] == [step for step, _ in learned(alone)]
    lines = {step: metrics for step, metrics in read_metrics(tmp_path / "run" / "metrics.jsonl") if step < STEPS}
    for step, metrics in read_metrics(alone / "metrics.jsonl"):
        if step < STEPS:
            assert lines[step]["loss/tokens"] == pytest.approx(metrics["loss/tokens"], rel=0.5)
            assert lines[step]["guard/mismatch_kl"] < 1e-6


def test_a_part_that_refuses_its_settings_ends_the_run(tiny_dir, tmp_path):
    status, output = wait(
        start(flags(tiny_dir, tmp_path / "run", "--deployment.sampler_restarts", "0", "--seq_len", "99999"))
    )
    assert status == 2 and "positions that" in output and "the sampler (process" in output


def test_a_stopped_sampler_is_named_within_its_time_out(tiny_dir, tmp_path):
    process = start(flags(tiny_dir, tmp_path / "run", "--inference.timeout_s", "3", "--max_steps", "50"))
    parts = pids(process)
    await_step(tmp_path / "run", 0)
    os.kill(parts["sampler"], signal.SIGSTOP)
    began = time.monotonic()
    status, output = wait(process)
    assert status == 2 and "the sampler at http://127.0.0.1:" in output and time.monotonic() - began < 60
    assert not any(start_time(pid) for pid in parts.values())


def test_ctrl_c_ends_all_and_says_how_to_continue(tiny_dir, tmp_path):
    process = start(flags(tiny_dir, tmp_path / "run", "--max_steps", "50"))
    parts = pids(process)
    await_step(tmp_path / "run", 0)
    process.send_signal(signal.SIGINT)
    status, output = wait(process)
    assert status == 130 and "To continue from the last checkpoint" in output
    assert not any(start_time(pid) for pid in parts.values())
