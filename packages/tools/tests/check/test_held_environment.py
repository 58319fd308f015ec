"""Ctrl-C ends a check whose environment computes for ever in the command's own process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SPINS = """
from slimrl import Task, Turn

class Spins:
    def tasks(self, split):
        return [Task(f"{split}/0", {})]
    def environment(self, task):
        return self
    async def start(self):
        return [{"role": "user", "content": "?"}]
    async def step(self, reply):
        print("spinning", flush=True)
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_command_that_an_environment_holds(tmp_path: Path) -> None:
    file = tmp_path / "spins.py"
    file.write_text(SPINS)
    argv = [sys.executable, "-m", "slimrl", "check", f"{file}:Spins", "--worker", "none"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout and any(line == "spinning\n" for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode not in (0, None)
