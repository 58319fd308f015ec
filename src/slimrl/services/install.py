"""The module finds a program on the PATH, or installs the Python package that has it, once, into the cache.

Each package gets a virtual environment of its own; slimrl's own environment is left as it is. The module knows nothing
of what the programs do.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say

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


def ensure_installed(requirement: str, why: str) -> Path:
    """The directory of the virtual environment with a package, which is installed now if it is missing.

    `why` is printed before an installation and says what it takes. After an interruption the next call begins again,
    with what pip has cached. Raises UserError if pip fails.
    """
    home = home_of(requirement)
    if (home / DONE).is_file():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_name(f"{home.name}.lock")):
        if (home / DONE).is_file():  # another process has installed it while this one waited for the lock
            return home
        say(f"installing {requirement} into {home}, once: {why}")
        python = home / "bin" / "python"
        _run([sys.executable, "-m", "venv", "--clear", str(home)], requirement)
        _run([str(python), "-m", "pip", "install", "--disable-pip-version-check", requirement], requirement)
        (home / DONE).write_text(f"{requirement}\n", encoding="utf-8")
    return home


def _run(command: list[str], requirement: str) -> None:
    """Run a command with its output on the terminal, so that its progress shows. Raises UserError if it fails."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise UserError(
            f"{requirement} could not be installed (`{' '.join(command)}` ended with {done.returncode}; what stands "
            "above says why). Install the program yourself, and put it on the PATH or name it by --program."
        )
