"""The finding on the container engine; no test depends on the machine that it runs on."""

from pathlib import Path

import pytest

from slimrl.monitor.findings import Level
from slimrl_search.doctor import container


def test_an_engine_that_is_not_installed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (engine,) = container.probe()
    assert engine.level is Level.NOTE and "docker is not on the PATH" in engine.found


def test_a_container_engine_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("slimrl_search.services.container.ENGINE_S", 0.2)
    (engine,) = container.probe()
    assert engine.level is Level.NOTE and "gives no answer" in engine.found
