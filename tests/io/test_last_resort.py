"""Ctrl-C ends a command also where Python cannot raise KeyboardInterrupt: within a single long call."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys
import torch
from slimrl import cli
from slimrl.commands import eval
from slimrl.io import last_resort

def compute(resolved):
    print("computing", flush=True)
    return torch.linalg.eigvals(torch.randn(6000, 6000))

torch.set_num_threads(1)
last_resort.LIMIT_S = 1.0
eval.run_eval = compute
sys.exit(cli.main())
"""


@pytest.mark.slow
def test_a_call_that_nothing_interrupts_ends_with_the_process() -> None:
    command = [sys.executable, "-c", PROGRAM, "eval", "--env.0.id", "reverse-text", "--output_dir", "outputs/never"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "computing\n"
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        status = process.wait(60)
        last = process.stderr.read().splitlines()[-1]
    assert status == 130 and time.monotonic() - began < 10
    assert last.startswith("Interrupted. To continue with the episodes that are left: ")
    assert "slimrl eval --env.0.id reverse-text" in last


SLOW_TO_FREE = """
import atexit, sys, time
from slimrl.io.last_resort import end_quietly

class Tensor:
    def __del__(self):
        time.sleep(60)

def work():
    print("working", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        return 130

atexit.register(print, "closed")
kept = Tensor()
sys.exit(end_quietly(work))
"""


def test_an_interrupted_process_closes_what_it_must_and_frees_nothing_else() -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW_TO_FREE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and said == "closed\n"
