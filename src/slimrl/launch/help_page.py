"""The pages of `slimrl COMMAND --help` for commands with settings. Imports nothing that reads settings."""

from collections.abc import Sequence
from importlib import import_module

from slimrl.config.base import CommandConfig
from slimrl.config.reading.help import help_text
from slimrl.config.run import RLConfig
from slimrl.io.invocation import HELP, show
from slimrl.plugins import Command

PART_HELP = """\
`slimrl {name}` is a part of an `rl` run as a process of its own, on the same host as the others, with the same file:

  slimrl inference @ FILE       samples tokens
  slimrl orchestrator @ FILE    plays episodes, makes batches, evaluates
  slimrl trainer @ FILE         trains

They find one another in the run's directory; `slimrl rl @ FILE --deployment.type processes` starts and watches them.
The settings are those of `rl`.

"""


def show_help(name: str, command: Command, argv: Sequence[str]) -> int:
    """Print the help page of a command, or of the section named after `--help`. Returns the exit status."""
    if command.settings:
        return show_settings(settings_of(command), argv)
    show(PART_HELP.format(name=name))
    return show_settings(RLConfig, argv)


def show_settings(config_class: type[CommandConfig], argv: Sequence[str]) -> int:
    """Print the settings of a command, or of the section named after `--help`. Returns the exit status."""
    place = next(place for place, word in enumerate(argv) if word in HELP)
    behind = argv[place + 1 : place + 2]
    section = next((word for word in behind if not word.startswith(("-", "@"))), "")
    return show(help_text(config_class, section))


def settings_of(command: Command) -> type[CommandConfig]:
    """Import and return the class of a command's settings."""
    module, _, name = command.settings.partition(":")
    found: type[CommandConfig] = vars(import_module(module))[name]
    return found
