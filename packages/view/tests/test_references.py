"""The recorded curves of a recipe, which other plug-ins give the viewer."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from packages.view.tests.made import indexed, make_run
from slimrl.errors import UserError
from slimrl_view.api import Api


def of_no_run(run_dir: Path) -> None:
    """Knows no recipe."""


def of_every_run(run_dir: Path) -> dict[str, Any]:
    return {"source": run_dir.name}


def test_the_first_plug_in_that_knows_the_recipe_gives_its_curves(tmp_path: Path, monkeypatch) -> None:
    api, entries = Api([indexed(make_run(tmp_path / "run"))]), dict[str, list[EntryPoint]]()
    monkeypatch.setattr("slimrl.plugins._entries", lambda group: entries)
    for function, wanted in (("", None), ("of_no_run", None), ("of_every_run", {"source": "run"})):
        if function:
            entries[function] = [EntryPoint(function, f"{__name__}:{function}", "slimrl.references")]
        assert api.answer("/api/runs/run/reference", {}) == wanted
    entries.clear()
    entries["of_nobody"] = [EntryPoint("of_nobody", f"{__name__}:of_nobody", "slimrl.references")]
    with pytest.raises(UserError, match="the reference `of_nobody` of an unknown distribution cannot be loaded"):
        api.answer("/api/runs/run/reference", {})
