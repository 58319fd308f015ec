"""The load by other programs, measured beside one that computes, and the note of a plan on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl.io.load import busy_cores, describe_load, num_cores

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs /proc/stat")


@pytest.mark.parametrize(
    ("threads", "busy", "cores", "is_said"),
    [(2, 0.3, 2, False), (2, 0.6, 2, True), (1, 1.0, 2, False), (8, 30, 64, False)],
)
def test_it_is_said_where_threads_would_wait(threads: int, busy: float, cores: int, is_said: bool) -> None:
    assert bool(describe_load(threads, busy, cores)) == is_said


@pytest.mark.slow
def test_programs_that_compute_are_seen_and_the_plan_says_so(
    tiny_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "--model.name", str(tiny_dir), "--orchestrator.env.0.id", "reverse-text"]
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_cores())]
    try:
        assert busy_cores() > 0.5 * num_cores()
        assert run(words) == 0
    finally:
        for program in programs:
            program.kill()
            program.wait()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("other programs use ") and f"of {num_cores()} cores: everything takes longer" in last
