"""Where memory cgroups can be made, what is found of those that a system has, and what is left of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from packages.sandbox.tests.conftest import run_all
from slimrl_sandbox import cgroup

V1 = "31 24 0:27 / {mount} rw,relatime shared:9 - cgroup cgroup rw,memory\n"
V2 = "30 23 0:26 {root} {mount} rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a machine's cgroups; `tell` says where this process is."""
    monkeypatch.setattr(cgroup, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(cgroup, "_OWN", tmp_path / "cgroup")
    (tmp_path / "mount").mkdir()
    return tmp_path


def tell(system: Path, mounts: str, own: str, root: str = "/") -> None:
    (system / "mountinfo").write_text(mounts.format(mount=system / "mount", root=root))
    (system / "cgroup").write_text(own)


def make(system: Path, path: str, file: str, text: str) -> Path:
    group = system / "mount" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / file).write_text(text)
    return group


def test_of_version_2_groups_whose_children_have_the_controller_will_do(system: Path) -> None:
    tell(system, V2, "0::/user.slice/app.slice/terminal.scope\n")
    make(system, "user.slice/app.slice/terminal.scope", "cgroup.subtree_control", "")
    make(system, "user.slice", "cgroup.subtree_control", "cpu pids\n")
    slice_ = make(system, "user.slice/app.slice", "cgroup.subtree_control", "cpu memory pids\n")
    assert cgroup._candidates() == [slice_]


def test_of_version_1_the_own_group_and_all_above_will_do(system: Path) -> None:
    tell(system, V1, "5:cpu:/x\n4:memory:/own\n0::/\n")
    own = make(system, "own", "memory.limit_in_bytes", "9")
    top = make(system, "", "memory.limit_in_bytes", "9")
    assert cgroup._candidates() == [own, top]


@pytest.mark.parametrize(
    ("mounts", "own"),
    [("", "0::/\n"), (V2, "0::/\n"), (V2, "0::/../elsewhere\n"), (V1, "3:cpu,cpuacct:/\n"), (V2, "")],
)
def test_elsewhere_there_is_none(system: Path, mounts: str, own: str) -> None:
    tell(system, mounts, own)
    assert cgroup._candidates() == []


def test_a_container_sees_its_own_groups_alone(system: Path) -> None:
    tell(system, V2, "0::/docker/1\n", root="/docker/1")
    top = make(system, "", "cgroup.subtree_control", "memory")
    assert cgroup._candidates() == [top]


def test_groups_of_processes_that_have_ended_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone, own = tmp_path / f"slimrl-sandbox-{ended.pid}-0", tmp_path / "slimrl-sandbox-1-0"
    for path in (gone, own):
        path.mkdir()
    cgroup._remove_leftovers(tmp_path)
    assert not gone.exists() and own.exists()


def test_a_group_bounds_what_runs_in_it_and_leaves_nothing() -> None:
    parent = cgroup.find_parent()
    if parent is None:
        pytest.skip("this user may make no cgroup")
    group = cgroup.Group(parent, 64 * 2**20)
    try:
        taking = subprocess.run(group.command([sys.executable, "-c", "bytearray(2**28).find(1)"]), check=False)
        assert taking.returncode == -9 and group.num_killed() == 1
    finally:
        group.remove()
    assert list(parent.glob(group._path.name)) == []


def test_a_process_that_is_left_in_a_group_is_killed_with_it() -> None:
    parent = cgroup.find_parent()
    if parent is None:
        pytest.skip("this user may make no cgroup")
    group = cgroup.Group(parent, 64 * 2**20)
    with subprocess.Popen(
        group.command([sys.executable, "-c", "print(1, flush=True); input()"]), stdin=-1, stdout=-1
    ) as left:
        assert left.stdout and left.stdout.readline() == b"1\n"
        group.remove()
        assert left.wait(10) == -9
    cgroup._remove_at_exit()
    assert list(parent.glob(group._path.name)) == []


@pytest.mark.slow
def test_executions_leave_no_group_behind(isolated: None) -> None:
    parent = cgroup.find_parent()
    if parent is None:
        pytest.skip("this user may make no cgroup")
    run_all(["print(1)"] * 30, num_spare=2)
    cgroup._remove_at_exit()
    assert list(parent.glob(f"slimrl-sandbox-{os.getpid()}-*")) == []
