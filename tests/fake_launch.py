"""Commands whose functions are replaced, for tests of the command line."""

import os
import sys
import types
from collections.abc import Mapping
from importlib import import_module

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import Resolved
from slimrl.plugins import Command


class FakeLaunch:
    """Stands in for the launchers, which would load a model: remembers what they were given."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, commands: Mapping[str, Command], failure: BaseException | None = None
    ) -> None:
        self.started: list[tuple[str, Resolved[CommandConfig], tuple[object, ...]]] = []
        self._failure = failure
        import_module("slimrl.launch.start")  # before modules that it imports are replaced
        for name, command in commands.items():
            place, _, function = command.run.partition(":")
            module = types.ModuleType(place)
            vars(module)[function] = self._runner(name)
            monkeypatch.setitem(sys.modules, place, module)
        for name in [name for name in os.environ if name.startswith(("SLIMRL_", "PRIME_"))]:
            monkeypatch.delenv(name)

    def _runner(self, name: str) -> object:
        def run(resolved: Resolved[CommandConfig], *more: object) -> int:
            self.started.append((name, resolved, more))
            if self._failure:
                raise self._failure
            return 7

        return run
