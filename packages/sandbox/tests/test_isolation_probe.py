"""The finding on bubblewrap; no test depends on the machine that it runs on."""

from pathlib import Path

import pytest

from slimrl.monitor.findings import Level
from slimrl_sandbox import isolation_probe
from slimrl_sandbox.base import Execution


def test_a_program_that_does_not_run_in_isolation_is_a_problem() -> None:
    assert isolation_probe.isolation_finding(Execution("42\n", "", "", 0.01, False)).level is Level.OK
    assert isolation_probe.isolation_finding(Execution("", "Killed", "", 0.01, False)).level is Level.PROBLEM


def test_bubblewrap_that_is_not_installed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (isolated,) = isolation_probe.probe()
    assert isolated.level is Level.NOTE and "bubblewrap" in isolated.remedy
