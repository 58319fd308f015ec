"""The module finds a program on the PATH, or installs the Python package that has it, once, into the cache.

Each package gets a virtual environment of its own; slimrl's own environment is left as it is. The module knows nothing
of what the programs do.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.locks import hold_lock
from slimrl.services.needs import GB, check_index, check_space
from slimrl.services.progress import ProgressLine

POLL_S = 0.2
LOG_LINES = 5
DONE = "installed"  # written last, so that an interrupted installation is not taken for one


def on_path(given: str, name: str) -> Path | None:
    """The path of the program that `given` names, or of `name` on the PATH, or None. Raises UserError if `given` is no
    file."""
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UserError(f"--program is {path}, and there is no such file.")
        return path.absolute()
    found = shutil.which(name)
    return Path(found) if found else None


def home_of(requirement: str) -> Path:
    """The directory of a package's virtual environment, whether it exists yet or not."""
    return cache_root() / "programs" / requirement.replace("==", "-")


def ensure_installed(requirement: str, why: str, needed_gb: float) -> Path:
    """The directory of the virtual environment with a package, which is installed now if it is missing.

    `why` is printed before an installation and says what it takes, and `needed_gb` is how much room, with what pip
    caches. After an interruption the next call begins again, with what pip has cached.

    Raises:
        UserError: if the disk has no room, no index can be reached, or pip fails.
    """
    home = home_of(requirement)
    if (home / DONE).is_file():
        return home
    check_space(home, round(needed_gb * GB), requirement, "SLIMRL_CACHE")
    check_index(requirement)
    home.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(home.with_name(f"{home.name}.lock"), f"installing {requirement}", say):
        if (home / DONE).is_file():  # another process has installed it while this one waited for the lock
            return home
        log = home.with_name(f"{home.name}.log")
        say(f"installing {requirement} into {home}, once: {why}; log: {log}")
        python = str(home / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", requirement]
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], pip):
            _run(command, requirement, log)
        (home / DONE).write_text(f"{requirement}\n", encoding="utf-8")
    return home


def _run(command: Sequence[str], requirement: str, log: Path) -> None:
    """Run a command, and show in one line what it said last. Raises UserError if it fails."""
    line = ProgressLine()
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            line.show(f"  {line.seconds:.0f} s: {_tail(log, 1)}")
            time.sleep(POLL_S)
    line.end()
    if process.returncode:
        raise UserError(
            f"{requirement} could not be installed: `{' '.join(command)}` ended with {process.returncode}. Install the "
            "program yourself, and put it on the PATH or name it by --program. The end of its log, "
            f"{log}:\n{_tail(log, LOG_LINES)}"
        )


def _tail(path: Path, lines: int) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
