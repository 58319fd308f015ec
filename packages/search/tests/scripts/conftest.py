"""The scripts import a module beside them, as Python does for a script that it runs."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def beside_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[4] / "scripts")
