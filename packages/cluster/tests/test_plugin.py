"""The entry points of this plug-in, and the behaviour that its commands share with all others."""

import pytest

from slimrl import cli
from tests.distributions import check_entries, check_help, check_owner, commands_of

NAME = "slimrl-cluster"
# What the same words do after Ctrl-C; nothing for a run that is resumed.
AGAIN = {
    "launch": "start over",
    "orchestrator": "",
    "scale": "start over",
    "status": "start over",
    "worker": "",
}


def test_its_entries_are_there() -> None:
    check_entries(NAME)


def test_slimrl_knows_where_they_are() -> None:
    check_owner(NAME)


def test_after_ctrl_c_each_command_says_how_to_go_on() -> None:
    assert {name: command.again for name, command in commands_of(NAME).items()} == AGAIN


def test_ctrl_c_ends_at_once_what_computes() -> None:
    assert [name for name, command in commands_of(NAME).items() if command.computes] == ["orchestrator"]


@pytest.mark.parametrize("command", AGAIN)
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_help(command, capsys)


@pytest.mark.parametrize("part", ["inference", "orchestrator", "trainer", "worker"])
def test_a_part_of_a_run_reads_the_file_of_the_run(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 0
    assert "[orchestrator]" in capsys.readouterr().out
    assert cli.run([part, "@", "examples/reverse_text/rl.toml", "--eval.num_example", "3"]) == 2
    assert "eval.num_examples" in capsys.readouterr().err
