"""A program from the PATH, or else from a Python package, installed once into an environment of its own in the cache.

Nothing is installed into this project's environment. Knows nothing of what the programs do.
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
    """The program that was named, or the one on the PATH; None if there is none there. Raises UserError."""
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UserError(f"--program is {path}, and there is no such file.")
        return path.absolute()
    found = shutil.which(name)
    return Path(found) if found else None


def home_of(requirement: str) -> Path:
    """Where the environment of a package is, or will be."""
    return cache_root() / "programs" / requirement.replace("==", "-")


def ensure_installed(requirement: str, why: str) -> Path:
    """The environment that holds a package. Installs it if it is not there, and says before what that takes; when
    interrupted, the next call begins again, with what pip has kept. Raises UserError."""
    home = home_of(requirement)
    if (home / DONE).is_file():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(home.with_name(f"{home.name}.lock")):
        if (home / DONE).is_file():
            return home
        say(f"installing {requirement} into {home}, once: {why}")
        python = home / "bin" / "python"
        _run([sys.executable, "-m", "venv", "--clear", str(home)], requirement)
        _run([str(python), "-m", "pip", "install", "--disable-pip-version-check", requirement], requirement)
        (home / DONE).write_text(f"{requirement}\n", encoding="utf-8")
    return home


def _run(command: list[str], requirement: str) -> None:
    """Shows what it says, so that one can see that it goes on."""
    done = subprocess.run(command, check=False)
    if done.returncode:
        raise UserError(
            f"{requirement} could not be installed (`{' '.join(command)}` ended with {done.returncode}; what stands "
            "above says why). Install the program yourself, and put it on the PATH or name it by --program."
        )
