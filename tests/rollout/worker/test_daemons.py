"""A process that an environment has cut off from itself ends with the environment, however that ends."""

import gc
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slimrl.io.process_tree import start_time
from tests.rollout.worker.test_taskset import load, play

FILE = Path(__file__).with_name("daemons.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no process that adopts orphans")


def await_end(pid: int) -> None:
    end = time.monotonic() + 10
    while start_time(pid):
        assert time.monotonic() < end, f"the daemon {pid} outlives its environment"
        time.sleep(0.05)


SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", ["closed", *(pytest.param(how, marks=SLOW) for how in ("exits", "segfault", "hangs"))])
def test_a_daemon_without_anything_ends_with_its_environment(how: str, tmp_path: Path) -> None:
    limit_s = 3.0 if how == "hangs" else 60.0
    remote = load("Daemons", limit_s, FILE, path=str(tmp_path / "pid"), how=how)
    (rollout,) = play(remote, 1, timeout_s=limit_s)
    assert (rollout.failure == "") == (how == "closed")
    pid = int((tmp_path / "pid").read_text(encoding="ascii"))
    del remote
    gc.collect()
    await_end(pid)


@pytest.mark.parametrize(
    "number",
    [pytest.param(number, marks=pytest.mark.nightly) for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)],
)
def test_a_daemon_ends_with_a_run_that_is_killed(number: int, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tests.rollout.worker.test_taskset import load, play; "
        f"remote = load('Daemons', 60.0, Path({str(FILE)!r}), path={str(tmp_path / 'pid')!r}); "
        "print([one.failure for one in play(remote, 1, 60.0)], flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and run.stdout.readline() == "['']\n"
        pid = int((tmp_path / "pid").read_text(encoding="ascii"))
        assert start_time(pid)
        run.send_signal(number)
    await_end(pid)
