"""The entry points of slimrl's plug-ins, and the behaviour that all their commands share."""

import pytest

from slimrl.plugins import OURS
from tests.distributions import check_entries, check_help, check_owner, commands_of

PLUGINS = sorted({name for group in OURS.values() for name in group.values()})
# The meaning of the same words after Ctrl-C, by plug-in and command; empty for a run that is resumed.
AGAIN = {
    "slimrl-cluster": {
        "launch": "start over",
        "orchestrator": "",
        "scale": "start over",
        "status": "start over",
        "worker": "",
    },
    "slimrl-envs": {},
    "slimrl-sandbox": {},
    "slimrl-search": {"judge": "start over"},
    "slimrl-serve": {"inference": "serve again"},
    "slimrl-tools": {
        "check": "start over",
        "check-curve": "start over",
        "doctor": "start over",
        "plan": "start over",
        "play": "play again",
        "plot": "start over",
        "probe": "start over",
        "push": "go on, without what is there already",
        "translate": "start over",
    },
    "slimrl-view": {"view": "start over"},
}
# Commands that Ctrl-C stops in the middle of a computation.
COMPUTES = {"slimrl-cluster": ["orchestrator"], "slimrl-tools": ["plan", "probe"]}
COMMANDS = [command for commands in AGAIN.values() for command in commands]


def test_the_table_has_all_plugins() -> None:
    assert sorted(AGAIN) == PLUGINS


@pytest.mark.parametrize("name", PLUGINS)
def test_entries_can_be_loaded_and_slimrl_names_their_owner(name: str) -> None:
    check_entries(name)
    check_owner(name)


@pytest.mark.parametrize("name", PLUGINS)
def test_ctrl_c_is_answered_by_the_meaning_of_the_same_words(name: str) -> None:
    commands = commands_of(name)
    assert {command: found.again for command, found in commands.items()} == AGAIN[name]
    assert [command for command, found in commands.items() if found.computes] == COMPUTES.get(name, [])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_help(command, capsys)
