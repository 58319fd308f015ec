"""A root of the file system with control groups, for tests of what a container or a batch system allows."""

from collections.abc import Mapping
from pathlib import Path


def fake_root(root: Path, membership: str, files: Mapping[str, str]) -> Path:
    """A root with the groups of this process, and with files below `sys/fs/cgroup`."""
    own = root / "proc" / "self" / "cgroup"
    own.parent.mkdir(parents=True)
    own.write_text(membership)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root
