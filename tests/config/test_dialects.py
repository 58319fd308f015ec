"""Settings of another trainer, a made-up one, whose plug-in is there, broken or missing."""

from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.load import load
from slimrl.config.run import EvalRunConfig, RLConfig
from slimrl.errors import UserError
from slimrl.plugins import DIALECTS
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
ENV = ["--orchestrator.env.0.id", "reverse-text"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(tmp_path, monkeypatch)


@pytest.fixture
def dialect(made: MadeUp) -> None:
    """The dialect is installed."""
    made.write("dialect_of_a_test", PLUGIN)
    made.install(slimrl_theirs={DIALECTS: {"theirs": "dialect_of_a_test:THEIRS"}})


def read(*argv: str, config_class: type[CommandConfig] = RLConfig) -> tuple[CommandConfig, list[str]]:
    """The configuration of a command line, and the notes about it."""
    notes: list[str] = []
    return load(config_class, argv, {}, notes.append).config, notes


def error_of(*argv: str, config_class: type[CommandConfig] = RLConfig) -> str:
    with pytest.raises(UserError) as caught:
        read(*argv, config_class=config_class)
    return str(caught.value)


@pytest.mark.usefixtures("dialect")
def test_a_file_of_another_trainer_is_read_and_a_report_says_how(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('num_updates = 7\nseed = 3\n[[orchestrator.env]]\nid = "reverse-text"\n')
    config, notes = read("@", f"{tmp_path}/c.toml")
    assert isinstance(config, RLConfig) and (config.max_steps, config.seed) == (7, 3)
    assert notes == [f"{tmp_path}/c.toml has names of their-rl's, and is read so:", "  all renamed"]


@pytest.mark.usefixtures("dialect")
def test_a_flag_of_another_trainer_is_read() -> None:
    config, notes = read(*ENV, "--wandb", "--num_updates", "7")  # `wandb` has no value there, and is a section here
    assert isinstance(config, RLConfig) and (config.max_steps, config.wandb.is_on) == (7, True)
    assert notes[0] == "the command line has names of their-rl's, and is read so:"


@pytest.mark.usefixtures("dialect")
def test_what_cannot_be_done_stops_with_what_the_dialect_says(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("magic = true\n")
    assert error_of("@", f"{tmp_path}/c.toml", *ENV) == f"{tmp_path}/c.toml asks for magic"
    assert error_of(*ENV, "--magic") == "the command line asks for magic"


@pytest.mark.usefixtures("dialect")
def test_own_names_are_not_translated(tmp_path: Path) -> None:
    assert read(*ENV, "--max_steps", "7")[1] == []
    assert "there is no such setting" in error_of(*ENV, "--num_updatez", "7")
    assert "there is no such setting" in error_of("--env.0.id", "x", "--num_updates", "7", config_class=EvalRunConfig)


def test_without_the_plug_in_its_names_are_unknown(made: MadeUp) -> None:
    assert "--num_updates: there is no such setting" in error_of(*ENV, "--num_updates", "7")


def test_a_broken_plug_in_is_noted_and_own_names_are_read(made: MadeUp) -> None:
    made.write("dialect_of_a_test", "1 / 0")
    made.install(slimrl_theirs={DIALECTS: {"theirs": "dialect_of_a_test:THEIRS"}})
    notes: list[str] = []
    variables = {"SLIMRL_MAX_STEPS": "7", "SLIMRL_TOP_K": "5"}  # the second of which is of another command
    assert load(RLConfig, ENV, variables, notes.append).config.max_steps == 7
    (note,) = notes
    assert note.startswith("the dialect `theirs` of slimrl-theirs cannot be loaded: ") and "division by zero" in note
