"""The entry points of this plug-in, and the behaviour that its commands share with all others."""

import pytest

from tests.distributions import check_entries, check_help, check_owner, commands_of

NAME = "slimrl-view"
AGAIN = {"view": "start over"}  # what the same words do after Ctrl-C


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
