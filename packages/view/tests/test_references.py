"""The recorded curves of a recipe, which other plug-ins give the viewer."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from packages.view.tests.made import indexed, make_run
from slimrl.errors import UserError
from slimrl_view.api import Api

CURVES = {"recipe": "known", "source": "here", "differs": [], "curves": {}}


def of_no_run(run_dir: Path) -> None:
    """Knows no recipe."""


def of_every_run(run_dir: Path) -> dict[str, Any]:
    return {**CURVES, "source": run_dir.name}


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that returns the viewer's answer where plug-ins have these functions."""
    api = Api([indexed(make_run(tmp_path / "run"))])

    def ask(*functions: str) -> Any:
        entries = {name: [EntryPoint(name, f"{__name__}:{name}", "slimrl.references")] for name in functions}
        monkeypatch.setattr("slimrl.plugins._entries", lambda group: entries)
        return api.answer("/api/runs/run/reference", {})

    return ask


@pytest.mark.parametrize(
    ("functions", "wanted"),
    [((), None), (("of_no_run",), None), (("of_every_run", "of_no_run"), {**CURVES, "source": "run"})],
)
def test_the_first_plug_in_that_knows_the_recipe_gives_its_curves(
    answer: Callable[..., Any], functions: tuple[str, ...], wanted: Any
) -> None:
    assert answer(*functions) == wanted


def test_a_plug_in_that_cannot_be_loaded_is_an_error_and_no_missing_reference(answer: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="the reference `of_nobody` of an unknown distribution cannot be loaded"):
        answer("of_nobody")
