"""The check of the components passes here."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[4] / "scripts" / "test_components.py"


@pytest.mark.slow
def test_all_components_pass(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", [str(SCRIPT)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.endswith("ALL TESTS PASSED!\n")
