"""The command line of this plug-in."""

import sys

import pytest

from slimrl import cli
from slimrl.config.reading.load import Resolved, load
from slimrl.config.serve import ServeConfig
from slimrl.io.invocation import command_prefix


def test_its_settings_start_a_server_by_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Resolved[ServeConfig]] = []

    def run(resolved: Resolved[ServeConfig]) -> int:
        started.append(resolved)
        return 7

    monkeypatch.setattr("slimrl_serve.start.run_inference", run)
    for argv, script in ((["slimrl", "inference"], cli.main), (["inference"], cli.inference)):
        monkeypatch.setattr(sys, "argv", [*argv, "--port", "3"])
        assert script() == 7
    assert started == [load(ServeConfig, ["--port", "3"], {})] * 2


def test_an_interrupted_server_says_how_to_serve_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(resolved: Resolved[ServeConfig]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("slimrl_serve.start.run_inference", run)
    assert cli.run(["inference", "--port", "0"]) == 130
    assert capsys.readouterr().err.endswith(f"To serve again: {command_prefix()}slimrl inference --port 0\n")
