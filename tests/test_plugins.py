"""Entry points: what is found, and what is said of those that are missing, are there twice or cannot be loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

from slimrl import plugins
from slimrl.errors import UserError
from slimrl.plugins import (
    COMMANDS,
    CORE,
    DEPLOYMENTS,
    ENVIRONMENTS,
    HOOKS,
    OURS,
    call,
    is_ours,
    load,
    load_all,
    names,
)
from tests.distributions import MadeUp, check_entries, entries_of

GOOD, OTHER = "the good object", "the other object"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(tmp_path, monkeypatch)


def said(group: str, name: str) -> str:
    with pytest.raises(UserError) as caught:
        load(group, name, "the thing")
    return str(caught.value)


def test_the_entries_of_the_core_are_there() -> None:
    check_entries(CORE)


def test_the_names_of_a_group_are_those_of_all_distributions(made: MadeUp) -> None:
    assert names(COMMANDS) == []
    made.install(
        first={COMMANDS: {"b": "m:b", "a": "m:a"}, HOOKS: {"h": "m:h"}}, second={COMMANDS: {"c": "n:c"}}, third={}
    )
    assert names(COMMANDS) == ["a", "b", "c"]
    assert names(HOOKS) == ["h"]
    assert names(ENVIRONMENTS) == []


def test_a_group_is_read_once_and_from_what_is_installed() -> None:
    assert plugins._entries(COMMANDS) is plugins._entries(COMMANDS)
    for group in (COMMANDS, ENVIRONMENTS):
        of_the_core = {entry.name for entry in entries_of(CORE, group)}
        assert of_the_core and of_the_core <= {*names(group)}


def test_an_entry_is_imported_when_it_is_asked_for(made: MadeUp) -> None:
    made.write("theirs_of_a_test", f"thing = {GOOD!r}")
    made.install(theirs={HOOKS: {"theirs": "theirs_of_a_test:thing"}})
    assert names(HOOKS) == ["theirs"] and "theirs_of_a_test" not in sys.modules
    assert load(HOOKS, "theirs", "the hook") == GOOD


@pytest.mark.parametrize(
    ("group", "name", "owner"),
    [
        (COMMANDS, "plan", "slimrl-tools"),
        (COMMANDS, "view", "slimrl-view"),
        (DEPLOYMENTS, "ray", "slimrl-cluster"),
        (ENVIRONMENTS, "wiki-search", "slimrl-search"),
        (ENVIRONMENTS, "textarena:", "slimrl-envs"),
    ],
)
def test_what_is_ours_and_not_installed_is_told_with_its_distribution(made: MadeUp, group: str, name: str, owner: str):
    assert said(group, name) == f"the thing `{name}` is in {owner}, which is not installed: `pip install {owner}`."


def test_what_nobody_has_is_told_with_what_there_is(made: MadeUp) -> None:
    made.install(theirs={HOOKS: {"b": "m:b", "a": "m:a"}})
    assert said(HOOKS, "c") == "the thing `c` is not installed. Known: a, b."


def test_a_name_that_two_distributions_have_is_used_of_neither(made: MadeUp) -> None:
    made.write("theirs_of_a_test", f"thing, other = {GOOD!r}, {OTHER!r}")
    made.install(
        first={HOOKS: {"same": "theirs_of_a_test:thing", "own": "theirs_of_a_test:thing"}},
        second_one={HOOKS: {"same": "theirs_of_a_test:other"}},
    )
    expected = "the thing `same` is in several distributions, first and second-one: uninstall all but one."
    assert said(HOOKS, "same") == expected
    assert load(HOOKS, "own", "the hook") == GOOD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("1 / 0", "division by zero"),
        ("def", "invalid syntax"),
        ("other = 1", "has no attribute 'thing'"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_distribution(made: MadeUp, text: str, reason: str) -> None:
    made.write("broken_of_a_test", text)
    made.install(theirs={HOOKS: {"broken": "broken_of_a_test:thing"}})
    message = said(HOOKS, "broken")
    assert message.startswith("the thing `broken` of theirs cannot be loaded: ") and reason in message


def test_what_a_plug_in_tells_the_user_stays_as_it_is(made: MadeUp) -> None:
    made.write("refusing_of_a_test", "from slimrl import UserError\nraise UserError('needs the extra [x].')")
    made.install(theirs={HOOKS: {"refusing": "refusing_of_a_test:thing"}})
    assert said(HOOKS, "refusing") == "needs the extra [x]."


def test_of_all_entries_those_that_cannot_be_loaded_are_told_and_the_others_used(made: MadeUp) -> None:
    made.write("theirs_of_a_test", f"thing, other = {GOOD!r}, {OTHER!r}")
    made.install(
        first={HOOKS: {"d": "theirs_of_a_test:thing", "b": "theirs_of_a_test:none", "c": "theirs_of_a_test:thing"}},
        second={HOOKS: {"a": "theirs_of_a_test:other", "c": "theirs_of_a_test:other"}},
    )
    notes: list[str] = []
    assert load_all(HOOKS, "the hook", notes.append) == [OTHER, GOOD]  # a, d
    broken, twice = notes
    assert broken.startswith("the hook `b` of first cannot be loaded: ")
    assert twice.startswith("the hook `c` is in several distributions, first and second")
    assert load_all(ENVIRONMENTS, "environment", notes.append) == [] and len(notes) == 2


def test_what_comes_with_slimrl_is_known_by_name_and_distribution(made: MadeUp) -> None:
    made.install(
        slimrl={ENVIRONMENTS: {"reverse-text": "m:a"}},
        slimrl_envs={ENVIRONMENTS: {"wordle": "m:a"}},
        theirs={ENVIRONMENTS: {"wiki-search": "m:a", "theirs": "m:a"}},
    )
    assert is_ours(ENVIRONMENTS, "reverse-text") and is_ours(ENVIRONMENTS, "wordle")
    assert not is_ours(ENVIRONMENTS, "wiki-search"), "of another distribution than ours"
    assert not is_ours(ENVIRONMENTS, "theirs") and not is_ours(ENVIRONMENTS, "alphabet-sort")


def test_a_name_that_is_ours_is_not_ours_if_others_have_it_too(made: MadeUp) -> None:
    made.install(slimrl_envs={ENVIRONMENTS: {"wordle": "m:a"}}, theirs={ENVIRONMENTS: {"wordle": "m:a"}})
    assert not is_ours(ENVIRONMENTS, "wordle")


def test_a_place_is_called_with_the_arguments(made: MadeUp) -> None:
    made.write("called_of_a_test", "def both(one, other):\n    return [one, other]")
    assert call("called_of_a_test:both", 1, "x") == [1, "x"]
    with pytest.raises(KeyError, match="none"):
        call("called_of_a_test:none")


def test_nothing_of_ours_is_the_cores() -> None:
    for group, owners in OURS.items():
        assert not owners.keys() & {entry.name for entry in entries_of(CORE, group)}
        assert all(owner.startswith("slimrl-") for owner in owners.values())


def test_looking_for_entries_imports_no_plug_in() -> None:
    program = (
        "import sys\nfrom slimrl import plugins\n"
        "for group in plugins.OURS:\n    plugins.names(group)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('slimrl')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["slimrl", "slimrl.errors", "slimrl.plugins", "slimrl.types"]
