"""The help says everything that the classes say."""

import shlex
from pathlib import Path

import pytest

from slimrl.config.base import CommandConfig
from slimrl.config.reading.help import WIDTH, help_text
from slimrl.config.reading.load import load
from slimrl.config.reading.schema import leaves, spec_of
from slimrl.config.run import COMMANDS
from slimrl.errors import UserError

NOT_HERE = {"outputs/rl/config.toml", "my_trainer.toml"}  # what another example leaves, and a reader's own
ALL = pytest.mark.parametrize("config_class", COMMANDS.values(), ids=list(COMMANDS))


@ALL
def test_help_lists_every_setting_with_its_type_and_text(config_class: type[CommandConfig]) -> None:
    text = help_text(config_class, "all")
    assert text.startswith(f"usage: slimrl {config_class.command} ") and config_class.__doc__
    settings = list(leaves(spec_of(config_class)))
    assert len(settings) >= 7
    for path, spec in settings:
        assert f"\n  --{'.'.join(path)}  " in text
        assert spec.field.description, f"{'.'.join(path)} has no text under it"
    for line in (help_text(config_class) + text).splitlines():
        assert len(line) <= WIDTH + 10, line


def test_help_alone_is_a_page_of_the_settings_that_people_change() -> None:
    text = help_text(COMMANDS["rl"])
    assert len(text.splitlines()) < 90
    assert len(COMMANDS["rl"].page) == 22 and all(f"\n  --{name} (" in text for name in COMMANDS["rl"].page)
    assert "`--help SECTION` prints one section" in text and "deployment, orchestrator" in text
    assert text.rstrip().splitlines()[-1].startswith("  slimrl rl @")


def test_help_of_one_section_or_setting() -> None:
    text = help_text(COMMANDS["rl"], "trainer.optim")
    assert text.startswith("[trainer.optim]\n") and "--trainer.optim.lr  number > 0" in text
    assert "--trainer.schedule" not in text and "--max_steps" not in text
    assert "--orchestrator.env.0.id" in help_text(COMMANDS["rl"], "orchestrator.env")
    assert help_text(COMMANDS["rl"], "seed").startswith("  --seed  integer >= 0 (default 0)")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [("trianer", "Did you mean `trainer`"), ("trainer.opt", "in the section `trainer`"), ("seed.x", "there is no `x`")],
)
def test_a_section_that_does_not_exist_is_refused(wanted: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        help_text(COMMANDS["rl"], wanted)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("rl", "--trainer.optim.lr  number > 0 (default 1e-05)\n      Peak learning rate."),
        ("rl", '--trainer.schedule.type  one of "constant", "linear", "cosine" (default "constant")'),
        ("rl", "[[orchestrator.env]]  list of sections, at least one (required)"),
        ("rl", "\n[trainer.guard]\n  Stops the run when"),
        ("sft", '[data]  if --data.type is "expert"\n'),
        ("sft", '[data]  if --data.type is "file"\n'),
        ("sft", '--data.type  "file" (required)\n'),
    ],
)
def test_help_shows_types_defaults_meanings_and_the_kinds_of_a_section(command: str, shown: str) -> None:
    assert shown in help_text(COMMANDS[command], "all")


@ALL
def test_examples_load(config_class: type[CommandConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    for example in config_class.examples:
        words = [word for word in shlex.split(example) if word not in ("--dry-run", "--json")]
        environ = dict(word.split("=") for word in words[: words.index("slimrl")])
        name, *argv = words[len(environ) + 1 :]
        assert name == config_class.command
        if config_class.operand and not argv[0].startswith(("-", "@")):
            argv.insert(0, f"--{config_class.operand}")
        if not NOT_HERE & set(argv):
            load(config_class, argv, environ)
