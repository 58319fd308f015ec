"""Entry points of installed distributions, the overview of commands, and plug-ins that are missing or broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from slimrl import cli, plugins
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
from tests.distributions import MadeUp, check_entries, commands_of, entries_of

OF_THE_CORE = commands_of(CORE)
REVERSE = "slimrl.environments.reverse_text:ReverseText"
GOOD, OTHER = "the good object", "the other object"
COMMAND = "from slimrl.plugins import Command\nONE = Command('does a thing', run='theirs_of_a_test:run')\n"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(tmp_path, monkeypatch)


def said(group: str, name: str) -> str:
    with pytest.raises(UserError) as caught:
        load(group, name, "the thing")
    return str(caught.value)


def listed(page: str) -> dict[str, str]:
    """Return the line of each command in an overview, in its order."""
    lines = page.split("[--key VALUE ...]\n\n")[1].split("\n\n")[0].splitlines()
    parts = [line.removeprefix("  slimrl ").partition(" ") for line in lines]
    return {name: about.strip() for name, _, about in parts}


def test_the_entries_of_the_core_are_there_and_those_of_plug_ins_are_not_the_cores() -> None:
    check_entries(CORE)
    assert plugins._entries(COMMANDS) is plugins._entries(COMMANDS)
    for group in (COMMANDS, ENVIRONMENTS):
        of_the_core = {entry.name for entry in entries_of(CORE, group)}
        assert of_the_core and of_the_core <= {*names(group)}
    for owners in OURS.values():
        assert all(owner.startswith("slimrl-") for owner in owners.values() if owner != CORE)
    assert {name for name, owner in OURS[COMMANDS].items() if owner == CORE} == OF_THE_CORE.keys()


def test_the_names_of_a_group_are_those_of_all_distributions(made: MadeUp) -> None:
    assert names(COMMANDS) == []
    made.install(
        first={COMMANDS: {"b": "m:b", "a": "m:a"}, HOOKS: {"h": "m:h"}}, second={COMMANDS: {"c": "n:c"}}, third={}
    )
    assert (names(COMMANDS), names(HOOKS), names(ENVIRONMENTS)) == (["a", "b", "c"], ["h"], [])
    assert said(HOOKS, "c") == "the thing `c` is not installed. Known: h."


def test_an_entry_is_imported_at_its_first_use(made: MadeUp) -> None:
    made.write("theirs_of_a_test", f"thing = {GOOD!r}")
    made.install(theirs={HOOKS: {"theirs": "theirs_of_a_test:thing"}})
    assert names(HOOKS) == ["theirs"] and "theirs_of_a_test" not in sys.modules
    assert load(HOOKS, "theirs", "the hook") == GOOD


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("1 / 0", "division by zero"),
        ("def", "invalid syntax"),
        ("other = 1", "has no attribute 'thing'"),
        ("from slimrl import UserError\nraise UserError('needs the extra [x].')", "needs the extra [x]."),
    ],
)
def test_the_error_of_a_broken_entry_names_its_distribution(made: MadeUp, text: str, reason: str) -> None:
    made.write("broken_of_a_test", text)
    made.install(theirs={HOOKS: {"broken": "broken_of_a_test:thing"}})
    message = said(HOOKS, "broken")
    if "raise UserError" in text:
        assert message == reason  # a message of the plug-in to the user stays as it is
    else:
        assert message.startswith("the thing `broken` of theirs cannot be loaded: ") and reason in message


def test_entries_that_cannot_be_loaded_are_noted_and_the_others_used(made: MadeUp) -> None:
    made.write("theirs_of_a_test", f"thing, other = {GOOD!r}, {OTHER!r}")
    made.install(
        first={HOOKS: {"d": "theirs_of_a_test:thing", "b": "theirs_of_a_test:none", "c": "theirs_of_a_test:thing"}},
        second_one={HOOKS: {"a": "theirs_of_a_test:other", "c": "theirs_of_a_test:other"}},
    )
    notes: list[str] = []
    assert load_all(HOOKS, "the hook", notes.append) == [OTHER, GOOD]  # a, d
    broken, twice = notes
    assert broken.startswith("the hook `b` of first cannot be loaded: ")
    assert twice == "the hook `c` is in several distributions, first and second-one: uninstall all but one."
    assert load_all(ENVIRONMENTS, "environment", notes.append) == [] and len(notes) == 2


def test_an_entry_of_slimrl_is_known_by_its_name_and_distribution(made: MadeUp) -> None:
    made.install(
        slimrl={ENVIRONMENTS: {"reverse-text": "m:a"}},
        slimrl_envs={ENVIRONMENTS: {"wordle": "m:a", "matching-game": "m:a"}},
        theirs={ENVIRONMENTS: {"wiki-search": "m:a", "theirs": "m:a", "matching-game": "m:a"}},
    )
    found = {name for name in (*names(ENVIRONMENTS), "alphabet-sort") if is_ours(ENVIRONMENTS, name)}
    assert found == {"reverse-text", "wordle"}


def test_a_place_is_called_with_the_arguments(made: MadeUp) -> None:
    made.write("called_of_a_test", "def both(one, other):\n    return [one, other]")
    assert call("called_of_a_test:both", 1, "x") == [1, "x"]
    with pytest.raises(KeyError, match="none"):
        call("called_of_a_test:none")


def test_looking_for_entries_imports_no_plug_in() -> None:
    program = (
        "import sys\nfrom slimrl import plugins\n"
        "for group in plugins.OURS:\n    plugins.names(group)\n"
        "print(*sorted(name for name in sys.modules if name.startswith('slimrl')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["slimrl", "slimrl.errors", "slimrl.plugins", "slimrl.types"]


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_slimrl_alone_teaches(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("slimrl: reinforcement learning for small language models")
    for name, command in OF_THE_CORE.items():
        assert f"\n  slimrl {name:<10} {command.about}\n" in out
    assert listed(out).keys() == {*names(COMMANDS)}


def test_the_overview_has_columns_and_lists_other_commands_last(made: MadeUp) -> None:
    known = ["b", "eval", "nine_sign", "eleven_sign", "longer-than-the-column", "init", "rl", "ten_letter"]
    made.write("theirs_of_a_test", COMMAND)
    made.install(theirs={COMMANDS: dict.fromkeys(known, "theirs_of_a_test:ONE")})
    page = cli.overview()
    behind = ["b", "eleven_sign", "longer-than-the-column", "nine_sign", "ten_letter"]
    assert [*listed(page)] == ["init", "rl", "eval", *behind]
    for name in known:
        gap = " " * max(2, 11 - len(name))
        assert f"\n  slimrl {name}{gap}does a thing\n" in page


def test_doubled_and_broken_commands_have_an_error_and_the_others_work(
    made: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write("theirs_of_a_test", f"{COMMAND}def run(words):\n    print('hello', *words)\n    return 5")
    made.write("broken_of_a_test", "import no_such_module")
    made.install(
        first={COMMANDS: {"well": "theirs_of_a_test:ONE", "twice": "theirs_of_a_test:ONE"}},
        second={COMMANDS: {"twice": "theirs_of_a_test:ONE", "broken": "broken_of_a_test:ONE"}},
    )
    told = {
        "twice": "the command `twice` is in several distributions, first and second: uninstall all but one.",
        "broken": "the command `broken` of second cannot be loaded: ",
    }
    for name, message in told.items():
        assert cli.run([name]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"slimrl: {message}") and err.count("\n") == 1
    assert cli.run(["well", "--to", "Ada"]) == 5
    assert capsys.readouterr().out == "hello --to Ada\n"
    lines = listed(cli.overview())
    assert lines.keys() == {"broken", "twice", "well"} and lines["well"] == "does a thing"
    for name, message in told.items():
        assert lines[name].startswith(f"({message}") and lines[name].endswith(")")


def test_the_error_of_a_missing_plug_in_names_its_distribution(
    made: MadeUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for group, owners in OURS.items():
        for name, owner in owners.items():
            assert said(group, name) == (
                f"the thing `{name}` is in {owner}, which is not installed: `pip install {owner}`."
            )
    for name, owner in OURS[COMMANDS].items():
        assert cli.run([name, "x"]) == 2
        told = f"slimrl: the command `{name}` is in {owner}, which is not installed: `pip install {owner}`.\n"
        assert capsys.readouterr() == ("", told)
    monkeypatch.setattr(cli, "end_quietly", lambda work: work())  # which leaves Ctrl-C to the system
    for name, script in (("inference", cli.inference), ("orchestrator", cli.orchestrator)):
        monkeypatch.setattr(sys, "argv", [name])
        assert script() == 2
        assert f"the command `{name}` is in {OURS[COMMANDS][name]}" in capsys.readouterr().err


def test_parts_and_processes_need_the_distribution_that_starts_them(
    made: MadeUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    core = {COMMANDS: {name: f"slimrl.commands.table:{name.upper()}" for name in ("trainer", "rl")}}
    made.install(slimrl={**core, ENVIRONMENTS: {"reverse-text": REVERSE}})
    monkeypatch.setattr("slimrl.launch.start._needs", lambda config: ())  # an extra may be missing
    missing = "slimrl: the deployment `processes` is in slimrl-cluster, which is not installed: "
    rl = [
        "rl",
        "--orchestrator.env.0.id",
        "reverse-text",
        "--deployment.type",
        "processes",
        "--output_dir",
        str(tmp_path / "out"),
    ]
    for argv in (["trainer", "@", "examples/reverse_text/rl.toml", "--dry-run"], rl):
        assert cli.run(argv) == 2
        assert capsys.readouterr().err == f"{missing}`pip install slimrl-cluster`.\n"
    assert cli.run(["trainer", "--dry-run"]) == 0  # alone
    made.write(
        "deployed_of_a_test",
        "from slimrl.plugins import Deployment\nHERE = Deployment('deployed_of_a_test:run', {})\n"
        "def run(config, argv, note):\n    return len(config.orchestrator.env) + 10",
    )
    made.install(slimrl_cluster={DEPLOYMENTS: {"processes": "deployed_of_a_test:HERE"}})
    assert cli.run(rl) == 11
