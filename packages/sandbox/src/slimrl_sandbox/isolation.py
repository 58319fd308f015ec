"""The module makes bubblewrap's command line, and explains why bubblewrap does not work on a machine.

A process gets its own namespaces: network, processes, users, host name and file system. It sees the host's `/usr` and
interpreter, read-only. It can write only to one file system in memory, whose size is limited. There is no `/proc`,
because it shows the whole machine, and no terminal, because all terminals share a pool. `Bare` is the variant without
isolation.
"""

import itertools
import os
import platform
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from slimrl.errors import UserError
from slimrl_sandbox import seccomp

SCRATCH = "/scratch"
_RUNNER = "/runner.pyc"
_SETPRIV = "/usr/bin/setpriv"
_ENVIRONMENT = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "PATH": "/usr/bin", "LANG": "C.UTF-8"}
# /dev/zero is missing: its pages, mapped shared, belong to no process and no file, and no limit counts them.
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")
_NAMESPACES = ("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
# User ids that no account has. Each execution gets its own id, as the kernel counts processes by user id.
_USERS = range(1_900_000_000, 1_950_000_000)
_USERS_IN_CONTAINERS = range(60_000, 65_000)

UNSAFE: Literal["none"] = "none"


class Bare:
    """No isolation: limits and time-outs apply, but the code has all rights of this user."""

    isolated = False

    def command(self, runner: Path, channel: int, filter_: int) -> list[str]:
        """Return the command that starts the runner, with the descriptors of its socket to the host and of the file
        with the seccomp filter."""
        return [*_python(), str(runner), str(channel)]


class Bubblewrap(Bare):
    """The isolation by bubblewrap's namespaces.

    Root gets an unused user id instead of a user namespace, because the kernel never limits root's number of processes,
    not even in a user namespace.
    """

    isolated = True

    def __init__(self, scratch_mb: int) -> None:
        binary = shutil.which("bwrap")
        if binary is None:
            raise cannot_isolate("bubblewrap (`bwrap`) is not installed", "Install it: `apt-get install bubblewrap`")
        if os.geteuid() == 0 and not Path(_SETPRIV).exists():
            raise cannot_isolate(f"`{_SETPRIV}` is not installed", "Run as an ordinary user, or install util-linux")
        self._binary = binary
        self._scratch_bytes = scratch_mb * 2**20
        self._system = _system()
        self._is_root = os.geteuid() == 0
        self._users = _USERS if _maps(_USERS.stop) else _USERS_IN_CONTAINERS
        # A random start, so that two sandboxes seldom use the same id at the same time.
        self._num_users = itertools.count(int.from_bytes(os.urandom(3), "big"))

    def command(self, runner: Path, channel: int, filter_: int) -> list[str]:
        return [
            self._binary,
            *_NAMESPACES,
            *self._privileges(),
            *("--hostname", "sandbox", "--new-session", "--die-with-parent", "--clearenv"),
            *itertools.chain.from_iterable(("--setenv", *item) for item in _ENVIRONMENT.items()),
            *self._system,
            *("--ro-bind", str(runner), _RUNNER),
            *("--perms", "0755", "--dir", "/dev"),
            *itertools.chain.from_iterable(("--dev-bind", device, device) for device in _DEVICES),
            *("--perms", "0777", "--size", str(self._scratch_bytes), "--tmpfs", SCRATCH),
            *("--symlink", SCRATCH.lstrip("/"), "/tmp"),
            # Read-only, because it is a file system in memory without a size limit.
            *("--remount-ro", "/", "--chdir", SCRATCH),
            *("--seccomp", str(filter_)),
            *("--", *self._change_of_user(), *_python(), _RUNNER, str(channel)),
        ]

    def _privileges(self) -> tuple[str, ...]:
        if self._is_root:
            return ("--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
        return ("--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL")

    def _change_of_user(self) -> tuple[str, ...]:
        """Return the command by which root changes its user id and loses all privileges; empty for other users."""
        if not self._is_root:
            return ()
        user = str(self._users[next(self._num_users) % len(self._users)])
        return (_SETPRIV, "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--")


@cache
def call_filter() -> bytes:
    """Return the filter of system calls for this machine's architecture. Raises UserError for an unknown one."""
    return seccomp.program(platform.machine())


def cannot_isolate(found: str, remedy: str) -> UserError:
    """Return the error that explains why code cannot be isolated here, with a remedy."""
    return UserError(
        f"the sandbox cannot isolate code here: {found}. {remedy}; or run the sandbox's server where it can, and use "
        f'its address. Code from a model runs without isolation only if asked for by name: isolation="{UNSAFE}", or '
        "`--unsafe-without-isolation`."
    )


def why_not(stderr: str) -> UserError:
    """Return the error with the setting to change, inferred from bubblewrap's last line and the kernel's settings."""
    said = stderr.strip().splitlines()[-1] if stderr.strip() else "bubblewrap ended without a word"
    if "nknown option" in said:  # "Unknown" or "unknown", by version
        return cannot_isolate(f"this bubblewrap is too old ({said})", "Install version 0.8 or later")
    for setting, blocking, value in _SETTINGS:
        if _setting(setting) == blocking:
            return cannot_isolate(
                f"this system forbids user namespaces ({setting} = {blocking})",
                f"Allow them: `sudo sysctl -w {setting}={value}`",
            )
    return cannot_isolate(
        f"bubblewrap failed ({said})",
        "Run as an ordinary user where user namespaces are allowed; in a container, start it with a seccomp profile "
        "that allows them (`docker/docker-compose.yml` does)",
    )


# sysctl, the value that forbids user namespaces, a value that allows them
_SETTINGS = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


def _setting(name: str) -> str:
    path = Path("/proc/sys", *name.split("."))
    return path.read_text().strip() if path.exists() else ""


def _maps(user: int) -> bool:
    """Return True if the user id is mapped in this user namespace; containers may map few ids."""
    # The first line of uid_map: first id inside, first id outside, number of ids.
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().splitlines()[0].split())
    return first + count > user


@cache
def _python() -> tuple[str, ...]:
    """Return the command for the interpreter without site-packages, user settings and environment variables. A virtual
    environment's path is a link that is not mounted inside."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8")


def _system() -> list[str]:
    """Return the read-only mounts: the system's libraries and the installation of the interpreter."""
    mounts = ["--ro-bind", "/usr", "/usr", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    for name in ("lib", "lib32", "lib64", "libx32", "bin"):
        path = Path("/", name)
        if path.is_symlink():  # on many systems /lib is a link to /usr/lib
            mounts += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            mounts += ["--ro-bind", str(path), str(path)]
    seen = "/usr"
    for needed in (os.path.realpath(sys.base_prefix), _python()[0]):
        if not any(Path(needed).is_relative_to(directory) for directory in ("/usr", seen)):
            # Made here, because bubblewrap would make these directories readable by their owner only.
            for parent in reversed(Path(needed).parents[:-1]):
                mounts += ["--perms", "0755", "--dir", str(parent)]
            mounts += ["--ro-bind", needed, needed]
            seen = needed
    return mounts
