"""Makes the command line of bubblewrap, and explains why bubblewrap does not work on a machine.

A process gets its own namespaces: network, processes, users, host name and file system. It sees the host's `/usr` and
interpreter, read-only. It can write only to one file system in memory, whose size is limited. It does not see `/proc`,
because `/proc` shows the whole machine. It has no terminal, because all terminals of a machine share a pool.
"""

import itertools
import os
import platform
import secrets
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
# User ids that no account has. Each execution gets a different id, because the kernel counts processes by user id.
_USERS = range(1_900_000_000, 1_950_000_000)
_USERS_IN_CONTAINERS = range(60_000, 65_000)
_NUMBERS = itertools.count(secrets.randbelow(len(_USERS)))  # of executions

UNSAFE: Literal["none"] = "none"


def bare_command(runner: Path, channel: int) -> list[str]:
    """Return the command that starts the runner without isolation. `channel` is the descriptor of its socket to the
    host. Limits and time-outs apply, but the code has all rights of this user."""
    return [*_python(), str(runner), str(channel)]


def isolated_command(runner: Path, channel: int, filter_: int, scratch_mb: int) -> list[str]:
    """Return the command that starts the runner under bubblewrap. `channel` is the descriptor of its socket to the
    host, and `filter_` the descriptor of the seccomp filter's file. Raises UserError if bubblewrap is missing."""
    return [
        find_bubblewrap(),
        *("--unshare-ipc", "--unshare-net", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *("--hostname", "sandbox", "--new-session", "--die-with-parent", "--clearenv", "--cap-drop", "ALL"),
        *itertools.chain.from_iterable(("--setenv", *item) for item in _ENVIRONMENT.items()),
        *_system(),
        *("--ro-bind", str(runner), _RUNNER),
        *("--perms", "0755", "--dir", "/dev"),
        *itertools.chain.from_iterable(("--dev-bind", device, device) for device in _DEVICES),
        *("--perms", "0777", "--size", str(scratch_mb * 2**20), "--tmpfs", SCRATCH),
        *("--symlink", SCRATCH.lstrip("/"), "/tmp"),
        # The root is read-only, because it is a file system in memory without a size limit.
        *("--remount-ro", "/", "--chdir", SCRATCH),
        *("--seccomp", str(filter_)),
        *_change_of_user(),
        *(*_python(), _RUNNER, str(channel)),
    ]


def find_bubblewrap() -> str:
    """Return the path of bubblewrap. Raises UserError if it is not installed."""
    if (found := shutil.which("bwrap")) is None:
        raise cannot_isolate("bubblewrap (`bwrap`) is not installed", "Install it: `apt-get install bubblewrap`")
    return found


def _change_of_user() -> tuple[str, ...]:
    """Return the last options of bubblewrap and the start of its command, so that the command has no privileges.

    Root's command gets an unused user id instead of a user namespace, because the kernel never limits the number of
    root's processes, not even in a user namespace.
    """
    if os.geteuid() != 0:
        return ("--unshare-user", "--uid", "1000", "--gid", "1000", "--")
    users = _USERS if _maps(_USERS.stop) else _USERS_IN_CONTAINERS
    user = str(users[next(_NUMBERS) % len(users)])
    change = (_SETPRIV, "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all", "--")
    return ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", *change)


@cache
def call_filter() -> bytes:
    """Return the filter of system calls for this machine's architecture. Raises UserError if the architecture is
    unknown."""
    return seccomp.program(platform.machine())


def cannot_isolate(found: str, remedy: str) -> UserError:
    """Return the error that explains why code cannot be isolated here. `found` is the reason."""
    return UserError(
        f"the sandbox cannot isolate code here: {found}. {remedy}; or run the sandbox's server where it can, and use "
        f'its address. Code from a model runs without isolation only if asked for by name: isolation="{UNSAFE}", or '
        "`--unsafe-without-isolation`."
    )


def why_not(stderr: str) -> UserError:
    """Return the error if bubblewrap exited before it started a program. Its message has the last line of `stderr`."""
    said = stderr.strip().splitlines()[-1] if stderr.strip() else "bubblewrap ended without a word"
    return cannot_isolate(
        f"bubblewrap failed ({said})",
        "It must be of version 0.8 or later, and user namespaces must be allowed: by `sudo sysctl -w "
        "user.max_user_namespaces=10000`, on Debian `kernel.unprivileged_userns_clone=1`, on Ubuntu "
        "`kernel.apparmor_restrict_unprivileged_userns=0`, and in a container by a seccomp profile "
        "(`docker/docker-compose.yml` has one)",
    )


def _maps(user: int) -> bool:
    """Return True if the user id is mapped in this user namespace; containers may map few ids."""
    # The first line of uid_map: first id inside, first id outside, number of ids.
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().splitlines()[0].split())
    return first + count > user


@cache
def _python() -> tuple[str, ...]:
    """Return the command for the interpreter without site-packages, user settings and environment variables. The path
    of the interpreter has no links, because a virtual environment's link is not mounted in the sandbox."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-X", "utf8")


@cache
def _system() -> list[str]:
    """Return bubblewrap's options for the read-only mounts: the system's libraries and the installed interpreter."""
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
            # The parents are made explicitly, because bubblewrap would make them readable only by their owner.
            for parent in reversed(Path(needed).parents[:-1]):
                mounts += ["--perms", "0755", "--dir", str(parent)]
            mounts += ["--ro-bind", needed, needed]
            seen = needed
    return mounts
