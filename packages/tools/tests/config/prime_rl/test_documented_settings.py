"""The settings that the page about prime-rl names are slimrl's, or are read from prime-rl's files."""

from slimrl_tools.prime_rl.keys import RL_KEYS
from slimrl_tools.prime_rl.rules import is_listed
from tests.project.distributions import ROOT
from tests.project.pages import unknown_settings


def is_read(name: str) -> bool:
    """Whether a name is one of prime-rl's that slimrl reads, or a section of such names."""
    return is_listed(RL_KEYS, tuple(name.split("."))) or any(key.startswith(f"{name}.") for key in RL_KEYS)


def test_every_setting_that_is_named_exists() -> None:
    named = unknown_settings(ROOT / "docs" / "prime_rl.md")
    assert len(named) > 5
    assert [name for name in named if not is_read(name)] == []
