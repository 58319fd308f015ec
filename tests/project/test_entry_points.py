"""The entry points of slimrl's plug-ins, and the behaviour that all their commands share."""

import pytest

from slimrl.plugins import CORE, OURS
from tests.distributions import check_entries, check_help, check_owner, commands_of

PLUGINS = sorted({name for group in OURS.values() for name in group.values()} - {CORE})
# The meaning of the same words after Ctrl-C, by plug-in and command; empty for a run that is resumed.
AGAIN = {
    "slimrl-cluster": {
        "launch": "start over",
        "orchestrator": "",
        "scale": "start over",
        "status": "start over",
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
COMMANDS = [(name, command) for name, commands in AGAIN.items() for command in commands]


@pytest.fixture
def installed(name: str) -> str:
    """The name of a plug-in; a test that asks for it is skipped where the plug-in is not installed."""
    pytest.importorskip(name.replace("-", "_"))
    return name


def test_the_table_has_all_plugins() -> None:
    assert sorted(AGAIN) == PLUGINS


@pytest.mark.parametrize("name", PLUGINS)
def test_entries_can_be_loaded_and_slimrl_names_their_owner(installed: str) -> None:
    check_entries(installed)
    check_owner(installed)


@pytest.mark.parametrize("name", PLUGINS)
def test_ctrl_c_is_answered_by_the_meaning_of_the_same_words(installed: str) -> None:
    commands = commands_of(installed)
    assert {command: found.again for command, found in commands.items()} == AGAIN[installed]
    assert [command for command, found in commands.items() if found.computes] == COMPUTES.get(installed, [])


@pytest.mark.parametrize(("name", "command"), COMMANDS)
@pytest.mark.usefixtures("installed")
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_help(command, capsys)
