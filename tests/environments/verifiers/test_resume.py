"""A run on a taskset of verifiers that is killed and resumed is the same bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimrl.cli import run
from tests.commands.test_rl import reproducible, rl_flags
from tests.environments.verifiers.plays import has_verifiers

pytestmark = pytest.mark.filterwarnings("default")  # its dependencies', on import
DOORS = {
    "0.1.": '[{id="verifiers:slim-classic", args={kind="several"}}]',
    "0.4.": '[{id="verifiers:slim-guess-v1", args={num_tasks=60}}]',
}


@pytest.mark.slow
@pytest.mark.parametrize("version", DOORS)
def test_a_killed_run_is_the_same(version: str, tiny_dir: Path, tmp_path: Path) -> None:
    if not has_verifiers(version):
        pytest.skip(f"verifiers {version.rstrip('.')} is not installed")
    more = ("--orchestrator.env", DOORS[version], "--warmup.max_steps", "0", "--seq_len", "512")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(rl_flags(tiny_dir, whole, *more)) == 0
    flags, metrics = rl_flags(tiny_dir, killed, *more), killed / "metrics.jsonl"
    process = subprocess.Popen([sys.executable, "-m", "slimrl", *flags], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= 4):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run([*flags, "--resume"]) == 0
    assert reproducible(killed) == reproducible(whole)
    assert all(metrics.get("drop/environment_error", 0) == 0 for _, metrics in reproducible(whole))
