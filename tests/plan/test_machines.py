"""This machine's limits, the table of devices, and the shape of the packaged model."""

import json
from pathlib import Path

import pytest

from slimrl.errors import UserError
from slimrl.models.packaged import CONFIGS, find_packaged_file
from slimrl.models.resolve import resolve
from slimrl.plan.devices import DEVICES, find_machines
from slimrl.plan.machine import free_disk, usable_memory
from slimrl.plan.shape import read_shape

TOTAL = 8 * 2**30


def fake_root(tmp_path: Path, membership: str, limits: dict[str, str]) -> Path:
    """A root with `proc` and `sys` of a machine of 8 GiB."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal:       {TOTAL // 1024} kB\nMemFree: 1 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text(membership)
    for path, limit in limits.items():
        file = tmp_path / "sys" / "fs" / "cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/user/job\n", {"user/job/memory.max": "max", "user/memory.max": str(2**30)}, 2**30),
        ("0::/job\n", {"job/memory.max": str(3 * 2**30), "memory.max": "max"}, 3 * 2**30),
        # In a container the path of the host is not there, and the mounted root is the container's own group.
        ("0::/docker/abc\n", {"memory.max": str(2**31)}, 2**31),
        ("5:memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": str(2**30)}, 2**30),
        ("5:cpu,memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, TOTAL),
        ("0::/\n", {"memory.max": str(2**40)}, TOTAL),
        ("0::/\n", {}, TOTAL),
    ],
)
def test_the_least_limit_of_the_control_groups_counts(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: int
) -> None:
    memory, limit = usable_memory(fake_root(tmp_path, membership, limits))
    assert memory == expected
    assert bool(limit) == (expected < TOTAL)


def test_the_disk_is_that_of_a_directory_that_does_not_exist_yet(tmp_path: Path) -> None:
    assert free_disk(tmp_path / "not" / "yet") > 0


def test_machines_are_named_by_device_and_number() -> None:
    one, eight, plain = find_machines("rtx3090x1, h100x8,RTX4060TI16G")
    assert (one.device.name, one.num_gpus) == ("rtx3090", 1)
    assert (eight.device.memory, eight.num_gpus) == (80 * 2**30, 8)
    assert (plain.device.name, plain.num_gpus) == ("rtx4060ti16g", 1)
    assert find_machines("l40sx2")[0].num_gpus == 2


@pytest.mark.parametrize(
    ("text", "shown"), [("rtx3900x1", "rtx3090"), ("h1oo", "h100"), ("h100x0", "1 to"), ("", "Known")]
)
def test_an_unknown_device_is_answered_with_the_nearest(text: str, shown: str) -> None:
    with pytest.raises(UserError, match=shown):
        find_machines(text)


def test_numbers_of_the_table_are_plausible() -> None:
    for name, device in DEVICES.items():
        assert name == device.name
        assert 4e9 < device.memory < 3e11
        assert device.float_flops <= device.flops


def test_the_packaged_models_shape_is_known_before_it_is_fetched() -> None:
    try:
        find_packaged_file("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))
    config = json.loads((resolve("smollm2-135m") / "config.json").read_text(encoding="utf-8"))
    assert CONFIGS["smollm2-135m"].items() <= config.items()
    assert read_shape("smollm2-135m").weights == 134_515_008
