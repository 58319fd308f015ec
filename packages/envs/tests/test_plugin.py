"""What slimrl finds of this plug-in."""

from tests.distributions import check_entries, check_owner


def test_its_entries_are_there() -> None:
    check_entries("slimrl-envs")


def test_slimrl_knows_where_they_are() -> None:
    check_owner("slimrl-envs")
