"""The command line: `slimrl rl ...`, or `rl ...`. This module finds the command, reads its settings, and calls it.

Commands are entry points (`slimrl.commands`). The commands of the core are in `commands/table.py`.
"""

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from slimrl.errors import UserError, nearest, visible
from slimrl.io.invocation import HELP, allow_any_letter, check_words, command_prefix, show
from slimrl.io.last_resort import end_quietly, end_when_interrupted
from slimrl.io.secrets import redact, redact_words
from slimrl.plugins import COMMANDS, OURS, Command, call, load, names

OVERVIEW = """\
slimrl: reinforcement learning for small language models, on the hardware you have.

usage: slimrl COMMAND [@ FILE ...] [--key VALUE ...]

{commands}

In a checkout `slimrl` is `uv run slimrl`, or what it says once .venv is active. `rl`, `sft`, `eval`, `trainer`,
`orchestrator` and `inference` are commands of their own too. `slimrl COMMAND --help` lists the settings of one.

Start here: a model of 135 million parameters learns to reverse text, on a CPU (`slimrl init .` brings the examples)
  slimrl rl @ examples/reverse_text/rl.toml
See what a run would do, and where each of its settings comes from
  slimrl rl @ examples/reverse_text/rl.toml --max_steps 20 --dry-run
Measure what it learned
  slimrl eval @ examples/reverse_text/eval.toml --model.name OUTPUT_DIR/weights/step_N
"""


def main() -> int:
    """Run the console script `slimrl` and return the exit status."""
    return _start()


def _start(*command: str) -> int:
    argv = [*command, *sys.argv[1:]]
    return end_quietly(partial(run, argv, is_process=True))


# The functions of the console scripts with these names.
rl, sft, trainer, eval_ = (partial(_start, name) for name in ("rl", "sft", "trainer", "eval"))
inference, orchestrator = (partial(_start, name) for name in ("inference", "orchestrator"))


def run(argv: Sequence[str], is_process: bool = False) -> int:
    """Run one command line. Return the exit status of the command, 2 after a UserError, or 130 after Ctrl-C. With
    `is_process`, the process runs only this command, so Ctrl-C may end the process in the middle of a computation."""
    allow_any_letter()
    if not argv or argv[0] in {"help", *HELP}:
        return show(overview())
    if argv[0] == "--version":
        return show(f"slimrl {version('slimrl')}\n")
    command = Command("")
    try:
        check_words(argv)
        command = find(argv[0])
        if is_process and command.computes:
            end_when_interrupted(visible(_interrupt_advice(command, argv)))
        words = argv[1:]
        if not (command.settings or command.is_part):
            return int(call(command.run, words))
        place = "config.reading.help:show_help" if HELP & {*words} else "launch.start:start_command"
        return int(call(f"slimrl.{place}", argv[0], command, words))
    except UserError as error:
        print(redact(visible(f"slimrl: {error}")), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(visible(_interrupt_advice(command, argv)), file=sys.stderr)
        return 130


def find(name: str) -> Command:
    """Return the command `name`. If there is no such command, raises UserError with the most similar name. If the
    command's distribution is not installed, the UserError explains how to install it."""
    known = names(COMMANDS)
    if name.startswith(("@", "-")):
        raise UserError(f"{name}: the command comes first, as in `slimrl rl {name} ...`. Known: {', '.join(known)}.")
    if name not in known and name not in OURS[COMMANDS]:
        raise UserError(f"there is no command `{name}`.{nearest(name, known)}")
    command: Command = load(COMMANDS, name, "the command")
    return command


def overview() -> str:
    """Return the page of `slimrl --help`."""
    known, lines = names(COMMANDS), []
    for name in [name for name in dict.fromkeys([*OURS[COMMANDS], *known]) if name in known]:
        try:
            about = find(name).about
        except UserError as error:
            about = f"({error})"
        lines.append(f"  slimrl {f'{name} ':<10} {about}")
    return OVERVIEW.format(commands="\n".join(lines))


def _interrupt_advice(command: Command, argv: Sequence[str]) -> str:
    """Return the message after Ctrl-C, with the command that continues the run."""
    again = f"{command_prefix()}slimrl {shlex.join(redact_words(argv))}"
    if command.again:
        return f"Interrupted. To {command.again}: {again}"
    left = "with the episodes that are left" if argv[0] == "eval" else "from the last checkpoint, if one was saved"
    return f"Interrupted. To continue {left}: {again}{'' if '--resume' in argv else ' --resume'}"
