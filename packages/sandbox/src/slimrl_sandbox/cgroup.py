"""The module makes memory cgroups, in which the kernel counts all memory of an execution, including its own.

It supports versions 1 and 2. A group is made below a group that this user may change. Root has one, and so has
a user with a group delegated by systemd. Without one, `watch` polls the memory that it can measure.
"""

import atexit
import itertools
import os
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import sleep

_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "slimrl-sandbox"
_PROCESSES = "cgroup.procs"
# The shell enters the group itself and becomes the command, so that no child of the command is left outside.
_ENTER = ("/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"')
_names = itertools.count()
_ended: set[Path] = set()  # groups to remove
_EXIT_TRIES, _EXIT_WAIT_S = 200, 0.01  # on a loaded machine the kernel takes a while to remove a killed process


class Group:
    """A new cgroup below `parent` with a limit of `num_bytes` of memory. Raises OSError if it cannot be made."""

    def __init__(self, parent: Path, num_bytes: int) -> None:
        self._path = parent / f"{_PREFIX}-{os.getpid()}-{next(_names)}"
        self._path.mkdir()
        try:
            if (self._path / "memory.max").exists():
                self._set("memory.max", num_bytes)
                self._set("memory.oom.group", 1)
                self._set_if_there("memory.swap.max", 0)
                self._events = self._path / "memory.events"
            else:
                self._set("memory.limit_in_bytes", num_bytes)
                self._set_if_there("memory.memsw.limit_in_bytes", num_bytes)
                self._events = self._path / "memory.oom_control"
        except OSError:
            self.remove()
            raise

    def command(self, command: list[str]) -> list[str]:
        """Return a command line that runs `command` inside the group."""
        return [*_ENTER, str(self._path / _PROCESSES), *command]

    def num_killed(self) -> int:
        """Return the number of the group's processes that the kernel killed because memory ran out."""
        words = self._events.read_text(encoding="ascii").split()
        return int(words[words.index("oom_kill") + 1])

    def remove(self) -> None:
        """Remove the group and kill its remaining processes. If the kernel needs more time for these, the
        group is removed together with the next one, or when this process exits."""
        _ended.add(self._path)
        _remove_ended()

    def _set(self, name: str, value: int) -> None:
        (self._path / name).write_text(str(value), encoding="ascii")

    def _set_if_there(self, name: str, value: int) -> None:
        if (self._path / name).exists():  # not where the kernel counts no swap
            self._set(name, value)


@cache
def find_parent() -> Path | None:
    """Return the nearest group above this process below which groups can be made and entered; None without one."""
    for parent in _candidates():
        _remove_leftovers(parent)
        try:
            group = Group(parent, 2**24)
        except OSError:
            continue
        try:
            # Only an attempt can show this: moving a process takes rights on the groups above as well.
            if not subprocess.run(group.command(["/bin/sh", "-c", ":"]), capture_output=True, check=False).returncode:
                return parent
        finally:
            group.remove()
    return None


def _candidates() -> list[Path]:
    """Return the groups of this process's memory controller, from its own to the topmost."""
    own = dict(line.split(":", 2)[1:] for line in _OWN.read_text(encoding="utf-8").splitlines())
    for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
        # https://docs.kernel.org/filesystems/proc.html: words 3 and 4 are the root and the mount point; the type, the
        # source and the options follow " - ". In version 1 the options name the controllers.
        left, _, right = line.partition(" - ")
        (root, place), (kind, _, options) = left.split()[3:5], right.split(" ", 2)
        if kind == "cgroup2":
            group, marks = own.get(""), ("cgroup.subtree_control", "memory")
        elif kind == "cgroup" and "memory" in options.split(","):
            group, marks = own.get("memory"), ("memory.limit_in_bytes", "")
        else:
            continue
        if group is None or not Path(group).is_relative_to(root):
            continue
        path = Path(place) / Path(group).relative_to(root)
        above = [path, *(parent for parent in path.parents if parent.is_relative_to(place))]
        # In version 2 only a group whose children have the memory controller is usable.
        found = [parent for parent in above if _has(parent / marks[0], marks[1]) and os.access(parent, os.W_OK)]
        if found:
            return found
    return []


def _has(file: Path, word: str) -> bool:
    return file.is_file() and (not word or word in file.read_text(encoding="ascii").split())


def _remove_ended() -> None:
    for path in list(_ended):
        try:
            path.rmdir()
        except FileNotFoundError:
            _ended.discard(path)
        except OSError:
            _kill_all(path)
        else:
            _ended.discard(path)


def _kill_all(group: Path) -> None:
    with suppress(OSError):
        for pid in (group / _PROCESSES).read_text(encoding="ascii").split():
            os.kill(int(pid), signal.SIGKILL)


@atexit.register
def _remove_at_exit() -> None:
    for _ in range(_EXIT_TRIES):
        _remove_ended()
        if not _ended:
            break
        sleep(_EXIT_WAIT_S)


def _remove_leftovers(parent: Path) -> None:
    """Remove groups left behind by processes that no longer run."""
    for path in parent.glob(f"{_PREFIX}-*"):
        if not Path("/proc", path.name.split("-")[2]).exists():
            with suppress(OSError):
                path.rmdir()
