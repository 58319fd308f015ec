"""Settings of others: another trainer, a made-up one, whose plug-in is there, broken or missing; another's command."""

from pathlib import Path

import pytest

from slimrl.config.reading.load import load
from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.plugins import COMMANDS, DIALECTS
from tests.config.reading import ENV, error_of, read
from tests.distributions import MadeUp

PLUGIN = """
from dataclasses import dataclass, replace
from slimrl import UserError

@dataclass
class Translation:
    settings: list
    impossible: list

    def lines(self):
        return iter(["all renamed"])

    def refuse_impossible(self, name):
        if self.impossible:
            raise UserError(f"{name} asks for {', '.join(self.impossible)}")

class Theirs:
    name = "their-rl"

    def has(self, command, path):
        return command == "rl" and path in (("num_updates",), ("magic",))

    def has_plain(self, path):
        return path == ("wandb",)

    def is_foreign(self, source, command, is_known):
        return any(self.has(command, one.path) or self.has_plain(one.path) for one in source)

    def translate(self, source, command, is_known):
        names = {"num_updates": ("max_steps",), "wandb": ("wandb", "enabled")}
        renamed = [replace(one, path=names.get(one.path[0], one.path)) for one in source if one.path[0] != "magic"]
        return Translation(renamed, [one.path[0] for one in source if one.path[0] == "magic"])

THEIRS = Theirs()
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(tmp_path, monkeypatch)


@pytest.fixture
def dialect(made: MadeUp) -> None:
    """The dialect is installed."""
    made.write("dialect_of_a_test", PLUGIN)
    made.install(slimrl_theirs={DIALECTS: {"theirs": "dialect_of_a_test:THEIRS"}})


@pytest.mark.usefixtures("dialect")
def test_a_file_of_another_trainer_is_read_and_a_report_says_how(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('num_updates = 7\nseed = 3\n[[orchestrator.env]]\nid = "reverse-text"\n')
    resolved, notes = read(RLConfig, "@", f"{tmp_path}/c.toml")
    assert (resolved.config.max_steps, resolved.config.seed) == (7, 3)
    assert notes == [f"{tmp_path}/c.toml has names of their-rl's, and is read so:", "  all renamed"]


@pytest.mark.usefixtures("dialect")
def test_a_flag_of_another_trainer_is_read() -> None:
    resolved, notes = read(RLConfig, *ENV, "--wandb", "--num_updates", "7")  # `wandb` is a section here, a switch there
    assert (resolved.config.max_steps, resolved.config.wandb.is_on) == (7, True)
    assert notes[0] == "the command line has names of their-rl's, and is read so:"


@pytest.mark.usefixtures("dialect")
def test_what_cannot_be_done_stops_with_what_the_dialect_says(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("magic = true\n")
    assert error_of(RLConfig, "@", f"{tmp_path}/c.toml", *ENV) == f"{tmp_path}/c.toml asks for magic"
    assert error_of(RLConfig, *ENV, "--magic") == "the command line asks for magic"


@pytest.mark.usefixtures("dialect")
def test_own_names_are_not_translated(tmp_path: Path) -> None:
    assert read(RLConfig, *ENV, "--max_steps", "7")[1] == []
    assert "there is no such setting" in error_of(RLConfig, *ENV, "--num_updatez", "7")
    assert "there is no such setting" in error_of(EvalRunConfig, "--env.0.id", "x", "--num_updates", "7")


def test_a_missing_or_broken_plug_in_leaves_own_names(made: MadeUp, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--num_updates: there is no such setting" in error_of(RLConfig, *ENV, "--num_updates", "7")
    made.write("dialect_of_a_test", "1 / 0")
    made.install(slimrl_theirs={DIALECTS: {"theirs": "dialect_of_a_test:THEIRS"}})
    variables = {"SLIMRL_MAX_STEPS": "7", "SLIMRL_TOP_K": "5"}  # the second of which is of another command
    assert load(RLConfig, ENV, variables).config.max_steps == 7
    note = capsys.readouterr().err
    assert note.startswith("slimrl: the dialect `theirs` of slimrl-theirs cannot be loaded: ")
    assert "division by zero" in note and note.count("\n") == 1


def test_the_settings_of_a_plug_ins_command_are_known_to_the_others(made: MadeUp, tmp_path: Path) -> None:
    made.write(
        "theirs_of_a_test",
        """
from slimrl.config.base import CommandConfig
from slimrl.plugins import Command

class GreetConfig(CommandConfig):
    command = "greet"
    loud_greeting: bool = False

GREET = Command("greet somebody", run="theirs_of_a_test:greet", settings="theirs_of_a_test:GreetConfig")
""",
    )
    made.install(slimrl_theirs={COMMANDS: {"greet": "theirs_of_a_test:GREET"}})
    read(RLConfig, *ENV, SLIMRL_LOUD_GREETING="true")
    assert "SLIMRL_LOUD_GREETINGS: this environment variable" in error_of(RLConfig, SLIMRL_LOUD_GREETINGS="true")
    file = tmp_path / "config.toml"
    file.write_text("# slimrl greet @ config.toml\nloud_greeting = true\n")
    assert read_run_config(tmp_path).model_dump() == {"loud_greeting": True}
    assert "is a settings file of `slimrl greet`" in error_of(RLConfig, *ENV, "@", str(file))
