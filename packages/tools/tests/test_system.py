"""The limits of control groups, from files like the kernel's, and the load by other programs."""

import os
from pathlib import Path

import pytest

from slimrl.cli import run
from slimrl_tools.system import load_note, memory_limit, usable_memory
from tests.fake_root import fake_root


@pytest.mark.parametrize(
    ("membership", "files", "memory"),
    [
        ("0::/job/inner\n", {"job/inner/memory.max": "max", "job/memory.max": "4000000000"}, 4e9),
        ("0::/job\n", {"job/memory.max": "3000000000", "memory.max": "5000000000"}, 3e9),
        # In a container the path of the host is not there, and the mounted root is the container's own group.
        ("0::/docker/abc\n", {"memory.max": "2000000000"}, 2e9),
        ("5:memory:/job\n0::/\n", {"job/memory.max": "1000", "memory.max": "2000"}, 2e3),
        ("0::/\n", {"memory.max": "max"}, 0.0),
        ("", {}, 0.0),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, membership: str, files: dict[str, str], memory: float) -> None:
    assert memory_limit(fake_root(tmp_path, membership, files)) == memory


@pytest.mark.parametrize("limit", [2**30, 2**60])
def test_a_limit_counts_if_it_is_below_the_memory(tmp_path: Path, limit: int) -> None:
    memory, name = usable_memory(fake_root(tmp_path, "0::/\n", {"memory.max": str(limit)}))
    assert (memory == limit, "memory.max" in name) == (limit == 2**30,) * 2


@pytest.mark.parametrize(
    ("threads", "busy", "cores", "is_said"),
    [(2, 0.3, 2, False), (2, 0.6, 2, True), (1, 1.0, 2, False), (8, 30, 64, False)],
)
def test_it_is_said_where_threads_would_wait(
    threads: int, busy: float, cores: int, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval, percpu: [100 * busy / cores] * cores)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {*range(cores)}, raising=False)
    assert bool(load_note(threads)) == is_said


@pytest.mark.slow
def test_a_plan_says_that_other_programs_compute(
    tiny_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.cpu_percent", lambda interval, percpu: [100.0] * (os.cpu_count() or 1))
    assert run(["plan", "--no-measure", "--model.name", str(tiny_dir), "--orchestrator.env.0.id", "reverse-text"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("other programs use ") and "cores: everything takes longer" in last
