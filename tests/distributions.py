"""Distributions with entry points: made-up ones in a directory, and a look at those that are installed."""

import ast
import importlib
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, distribution, distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from slimrl import cli
from slimrl.plugins import COMMANDS, OURS, Command

Groups = Mapping[str, Mapping[str, str]]  # the place of each entry by its name, by group


class MadeUp:
    """Distributions that are installed in a directory for a test. slimrl finds them, and no others, not even itself."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._installed, self._modules = directory / "installed", directory / "modules"
        self._monkeypatch = monkeypatch
        self._modules.mkdir()
        monkeypatch.syspath_prepend(self._modules)
        monkeypatch.setattr("slimrl.plugins._entries", self._entries)

    def _entries(self, group: str) -> dict[str, list[EntryPoint]]:
        entries: dict[str, list[EntryPoint]] = {}
        for one in distributions(path=[str(self._installed)]):
            for entry in one.entry_points.select(group=group):
                entries.setdefault(entry.name, []).append(entry)
        return entries

    def install(self, **contents: Groups) -> None:
        """Leave what an installation leaves of each distribution, with these entry points; `_` in a name is `-`."""
        for key, groups in contents.items():
            name, info = key.replace("_", "-"), self._installed / f"{key}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
            lines = [
                line
                for group, entries in groups.items()
                for line in (f"[{group}]", *(f"{entry} = {place}" for entry, place in entries.items()))
            ]
            (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")

    def write(self, module: str, text: str) -> None:
        """Write a module that can be imported."""
        (self._modules / f"{module}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        self._monkeypatch.delitem(sys.modules, module, raising=False)


def entries_of(name: str, group: str = "") -> list[EntryPoint]:
    """The entries of an installed distribution, of one group or of all of slimrl's."""
    entries = distribution(name).entry_points
    return [one for one in entries if (one.group == group if group else one.group.startswith("slimrl."))]


def commands_of(name: str) -> dict[str, Command]:
    """The commands of an installed distribution."""
    return {entry.name: entry.load() for entry in entries_of(name, COMMANDS)}


def check_entries(name: str) -> None:
    """Fail unless all entries of an installed distribution can be loaded, and all that its commands name is there."""
    assert entries_of(name)
    for entry in entries_of(name):
        entry.load()
    for command in commands_of(name).values():
        assert command.about and (command.run or command.is_part)
        for place in filter(None, (command.run, command.settings)):
            assert defines(place), f"there is no {place}"


def check_owner(name: str) -> None:
    """Fail unless slimrl knows of all entries of one of its plug-ins that it must be installed for them, and of no
    others."""
    for group, owners in OURS.items():
        found = {entry.name for entry in entries_of(name, group)}
        assert found == {key for key, owner in owners.items() if owner == name}, group


def check_help(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The page of `slimrl NAME --help`. Fails unless there is one, and the status is 0."""
    try:
        status = cli.run([name, "--help"])
    except SystemExit as ended:  # of argparse
        status = ended.code
    out = capsys.readouterr().out
    assert status == 0 and "usage: slimrl " in out
    assert out.startswith((f"usage: slimrl {name}", f"`slimrl {name}` is a part of an `rl` run"))
    return out


def defines(place: str) -> bool:
    """Whether the module of a `module:name` has the function or the class. The module is not imported."""
    module, _, name = place.partition(":")
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return False
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    return any(isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name for one in body)
