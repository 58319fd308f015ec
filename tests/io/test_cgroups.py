"""The limits of control groups of both versions, from files like the kernel's."""

from pathlib import Path

import pytest

from slimrl.io.cgroups import cpu_limit, memory_limit
from tests.fake_root import fake_root


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/job/inner\n", {"job/inner/memory.max": "max", "job/memory.max": "4000000000"}, (4e9, "memory.max")),
        ("0::/job\n", {"job/memory.max": "3000000000", "memory.max": "5000000000"}, (3e9, "memory.max")),
        # In a container the path of the host is not there, and the mounted root is the container's own group.
        ("0::/docker/abc\n", {"memory.max": "2000000000"}, (2e9, "memory.max")),
        ("5:memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": "1000"}, (1e3, "memory.limit_in_bytes")),
        ("5:cpu,memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, (0.0, "")),
        ("0::/\n", {"memory.max": "no number"}, (0.0, "")),
        ("", {}, (0.0, "")),
    ],
)
def test_the_least_limit_of_memory_counts(
    tmp_path: Path, membership: str, files: dict[str, str], expected: tuple[float, str]
) -> None:
    assert memory_limit(fake_root(tmp_path, membership, files)) == expected


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/job/inner\n", {"job/inner/cpu.max": "150000 100000", "job/cpu.max": "max 100000"}, 1.5),
        ("4:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"}, 0.0),
        ("4:cpu,cpuacct:/job\n", {"cpu/job/cpu.cfs_quota_us": "200000", "cpu/job/cpu.cfs_period_us": "100000"}, 2.0),
        ("0::/\n", {}, 0.0),
    ],
)
def test_the_least_limit_of_cores_counts(
    tmp_path: Path, membership: str, files: dict[str, str], expected: float
) -> None:
    assert cpu_limit(fake_root(tmp_path, membership, files)) == expected


def test_where_nothing_can_be_read_there_is_no_limit(tmp_path: Path) -> None:
    assert (memory_limit(tmp_path), cpu_limit(tmp_path)) == ((0.0, ""), 0.0)
