"""The module finds a program on the PATH, or installs its Python package into the cache, once.

Each package gets its own virtual environment; slimrl's environment is not changed. The module does not depend on the
programs' tasks.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.cache import cache_root, say
from slimrl.io.locks import hold_lock

GB = 1_000_000_000
STDERR = 2  # pip writes its progress here, apart from the output of the script
DONE = "installed"  # written last, so that an interrupted installation does not count


def on_path(given: str, name: str) -> Path | None:
    """Return the path of the program: `given` if set, else `name` on the PATH, or None. Raises UserError if `given` is
    not a file."""
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UserError(f"--program is {path}, and there is no such file.")
        return path.absolute()
    found = shutil.which(name)
    return Path(found) if found else None


def home_of(requirement: str) -> Path:
    """Return the directory of a package's virtual environment, which may not exist yet."""
    return cache_root() / "programs" / requirement.replace("==", "-")


def ensure_installed(requirement: str, why: str, needed_gb: float) -> Path:
    """Return the directory of the virtual environment with a package. Install it first if it is missing.

    `why`, printed before an installation, describes its cost. `needed_gb` is the disk space, with pip's cache. After an
    interruption the next call starts again, with pip's cache.

    Raises:
        UserError: if the disk has no room, or pip fails.
    """
    home = home_of(requirement)
    if (home / DONE).is_file():
        return home
    _check_space(home, needed_gb, requirement)
    home.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(home.with_name(f"{home.name}.lock"), f"installing {requirement}", say):
        if (home / DONE).is_file():  # another process has installed it while this one waited for the lock
            return home
        say(f"installing {requirement} into {home}, once: {why}")
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", requirement]
        for command in ([sys.executable, "-m", "venv", "--clear", str(home)], pip):
            if status := subprocess.run(command, stdout=STDERR, check=False).returncode:
                raise UserError(
                    f"{requirement} could not be installed, for the reason above: `{' '.join(command)}` ended with "
                    f"{status}. Or install the program yourself, and put it on the PATH or name it by --program."
                )
        (home / DONE).write_text(f"{requirement}\n", encoding="utf-8")
    return home


def _check_space(directory: Path, needed_gb: float, what: str) -> None:
    """Raise UserError if the disk of a directory has too little room."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / GB
    if free_gb < needed_gb:
        raise UserError(
            f"{what} needs {needed_gb:.1f} GB, and the disk of {directory} has {free_gb:.1f} GB free. Make room, or "
            "name a directory on another disk in the variable SLIMRL_CACHE."
        )
