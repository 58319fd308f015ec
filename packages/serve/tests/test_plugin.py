"""The entry points of this plug-in, and the behaviour that its commands share with all others."""

import sys

import pytest

from slimrl import cli
from slimrl.config.reading.load import Resolved, load
from slimrl.config.serve import ServeConfig
from slimrl.io.invocation import command_prefix
from tests.distributions import check_entries, check_help, check_owner, commands_of

NAME = "slimrl-serve"
AGAIN = {"inference": "serve again"}  # what the same words do after Ctrl-C


def test_its_entries_are_there() -> None:
    check_entries(NAME)


def test_slimrl_knows_where_they_are() -> None:
    check_owner(NAME)


def test_after_ctrl_c_each_command_says_how_to_go_on() -> None:
    assert {name: command.again for name, command in commands_of(NAME).items()} == AGAIN


def test_ctrl_c_ends_at_once_what_computes() -> None:
    assert [name for name, command in commands_of(NAME).items() if command.computes] == []


@pytest.mark.parametrize("command", AGAIN)
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_help(command, capsys)


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
