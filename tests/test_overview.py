"""The overview of commands, and the commands that plug-ins add: those that are missing, broken or there twice, too."""

import sys
from pathlib import Path

import pytest

from slimrl import cli
from slimrl.plugins import COMMANDS, CORE, DEPLOYMENTS, ENVIRONMENTS, OURS
from tests.distributions import MadeUp, commands_of

OF_THE_CORE = commands_of(CORE)
REVERSE = "slimrl.environments.reverse_text:ReverseText"


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(tmp_path, monkeypatch)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_slimrl_alone_teaches(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith("slimrl: reinforcement learning for small language models")
    for name, command in OF_THE_CORE.items():
        assert f"\n  slimrl {name:<10} {command.about}\n" in out


def listed(page: str) -> dict[str, str]:
    """What an overview says of each command, in its order."""
    lines = page.split("[--key VALUE ...]\n\n")[1].split("\n\n")[0].splitlines()
    parts = [line.removeprefix("  slimrl ").partition(" ") for line in lines]
    return {name: about.strip() for name, _, about in parts}


def test_the_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["no such command"])
    known = capsys.readouterr().err.split("Known: ")[1].rstrip(".\n").split(", ")
    assert {*known} >= OF_THE_CORE.keys()
    assert sorted(listed(cli.overview())) == sorted(known)


def test_every_command_of_ours_has_its_place_in_the_overview() -> None:
    assert sorted(cli.ORDER) == sorted([*OF_THE_CORE, *OURS[COMMANDS]])


def test_the_overview_has_columns_and_those_of_others_stand_behind(made: MadeUp) -> None:
    known = ["b", "eval", "nine_sign", "eleven_sign", "longer-than-the-column", "init", "rl", "ten_letter"]
    made.write("columns_of_a_test", "from slimrl.plugins import Command\nONE = Command('does a thing')")
    made.install(theirs={COMMANDS: dict.fromkeys(known, "columns_of_a_test:ONE")})
    page = cli.overview()
    behind = ["b", "eleven_sign", "longer-than-the-column", "nine_sign", "ten_letter"]
    assert [*listed(page)] == ["init", "rl", "eval", *behind]
    for name in known:
        gap = " " * max(2, 11 - len(name))
        assert f"\n  slimrl {name}{gap}does a thing\n" in page


def test_a_command_of_a_plug_in_gets_its_words(made: MadeUp, capsys: pytest.CaptureFixture[str]) -> None:
    made.write(
        "greeting_of_a_test",
        "from slimrl.plugins import Command\nGREET = Command('says hello', run='greeting_of_a_test:greet')\n"
        "def greet(words):\n    print('hello', *words)\n    return 3",
    )
    made.install(theirs={COMMANDS: {"greet": "greeting_of_a_test:GREET"}})
    assert cli.run(["greet", "--to", "Ada"]) == 3
    assert capsys.readouterr().out == "hello --to Ada\n"
    assert listed(cli.overview()) == {"greet": "says hello"}


def test_a_name_that_two_distributions_have_and_a_broken_one_are_told_and_the_others_work(
    made: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write(
        "well_of_a_test",
        "from slimrl.plugins import Command\nONE = Command('works', run='well_of_a_test:run')\n"
        "def run(words):\n    return 5",
    )
    made.write("broken_of_a_test", "import no_such_module")
    made.install(
        first={COMMANDS: {"well": "well_of_a_test:ONE", "twice": "well_of_a_test:ONE"}},
        second={COMMANDS: {"twice": "well_of_a_test:ONE", "broken": "broken_of_a_test:ONE"}},
    )
    told = {
        "twice": "the command `twice` is in several distributions, first and second: uninstall all but one.",
        "broken": "the command `broken` of second cannot be loaded: ",
    }
    for name, message in told.items():
        assert cli.run([name]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"slimrl: {message}") and err.count("\n") == 1
    assert "No module named 'no_such_module'" in err
    assert cli.run(["well"]) == 5
    lines = listed(cli.overview())
    assert lines.keys() == {"broken", "twice", "well"} and lines["well"] == "works"
    for name, message in told.items():
        assert lines[name].startswith(f"({message}") and lines[name].endswith(")")


@pytest.mark.parametrize(("name", "owner"), OURS[COMMANDS].items())
def test_a_command_that_is_not_installed_says_in_a_line_which_distribution_has_it(
    name: str, owner: str, made: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([name, "x"]) == 2
    told = f"slimrl: the command `{name}` is in {owner}, which is not installed: `pip install {owner}`.\n"
    assert capsys.readouterr() == ("", told)


def test_the_trainer_as_a_part_needs_the_distribution_that_starts_parts(
    made: MadeUp, capsys: pytest.CaptureFixture[str]
) -> None:
    made.install(slimrl={COMMANDS: {"trainer": "slimrl.commands.table:TRAINER"}})
    assert cli.run(["trainer", "@", "examples/reverse_text/rl.toml", "--dry-run"]) == 2
    assert capsys.readouterr().err == (
        "slimrl: the deployment `processes` is in slimrl-cluster, which is not installed: "
        "`pip install slimrl-cluster`.\n"
    )
    assert cli.run(["trainer", "--dry-run"]) == 0  # alone


def test_a_run_of_processes_needs_the_distribution_that_starts_them(
    made: MadeUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made.install(slimrl={COMMANDS: {"rl": "slimrl.commands.table:RL"}, ENVIRONMENTS: {"reverse-text": REVERSE}})
    monkeypatch.setattr("slimrl.launch.start.refuse_early", lambda config: None)  # an extra may be missing
    argv = ["rl", "--orchestrator.env.0.id", "reverse-text", "--deployment.type", "processes"]
    assert cli.run(argv) == 2
    assert "the deployment `processes` is in slimrl-cluster, which is not installed" in capsys.readouterr().err
    made.write(
        "deployed_of_a_test",
        "from slimrl.plugins import Deployment\nHERE = Deployment('deployed_of_a_test:run', '', {})\n"
        "def run(resolved):\n    return len(resolved.config.orchestrator.env) + 10",
    )
    made.install(slimrl_cluster={DEPLOYMENTS: {"processes": "deployed_of_a_test:HERE"}})
    assert cli.run(argv) == 11


def test_the_scripts_of_plug_ins_are_their_commands(
    made: MadeUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "end_quietly", lambda work: work())  # which leaves Ctrl-C to the system
    for name, script in (("inference", cli.inference), ("orchestrator", cli.orchestrator)):
        monkeypatch.setattr(sys, "argv", [name])
        assert script() == 2
        assert f"the command `{name}` is in {OURS[COMMANDS][name]}" in capsys.readouterr().err
