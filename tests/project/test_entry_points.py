"""The entry points of slimrl's plug-ins, and the behaviour that all their commands share."""

import pytest

from slimrl.plugins import COMMANDS, CORE, OURS
from tests.distributions import check_entries, check_help, check_owner

PLUGINS = sorted({name for group in OURS.values() for name in group.values()} - {CORE})
OTHERS = [(name, command) for command, name in OURS[COMMANDS].items() if name != CORE]


@pytest.fixture
def installed(name: str) -> str:
    """The name of a plug-in; a test that asks for it is skipped where the plug-in is not installed."""
    pytest.importorskip(name.replace("-", "_"))
    return name


@pytest.mark.parametrize("name", PLUGINS)
def test_entries_can_be_loaded_and_slimrl_names_their_owner(installed: str) -> None:
    check_entries(installed)
    check_owner(installed)


@pytest.mark.parametrize(("name", "command"), OTHERS)
@pytest.mark.usefixtures("installed")
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_help(command, capsys)
