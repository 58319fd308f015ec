"""The RL loop started as a module, as with torchrun, is the command `trainer` with its settings. `test_sharded_runs.py`
trains with it."""

import runpy
import sys

import pytest


def test_a_mistake_is_told_and_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "@", "missing.toml"])
    monkeypatch.delitem(sys.modules, "slimrl.trainer.rl.train", raising=False)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("slimrl.trainer.rl.train", run_name="__main__")
    assert "missing.toml" in capsys.readouterr().err
