"""Threads that wait for one another leave the cores to other programs, unless the user has asked for something else."""

import os
import subprocess
import sys

import pytest

SHOWN = "import slimrl, os; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("asked", "spins"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_waiting_threads_spin_as_long_as_slimrl_or_the_user_asks_for(asked: dict[str, str], spins: str) -> None:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    found = subprocess.run([sys.executable, "-c", SHOWN], env=environment | asked, capture_output=True, text=True)
    assert found.stdout.strip() == spins


def test_pytorch_is_not_loaded_before_that_is_set() -> None:
    code = "import sys, slimrl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
