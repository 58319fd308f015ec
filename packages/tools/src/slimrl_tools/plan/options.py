"""Reads the command line of `slimrl plan`: the settings of `rl` or `sft`, and its own options. Imports no PyTorch."""

from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from slimrl.config.reading.flags import names_section
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.io.invocation import HELP, show
from slimrl.launch.start import run_command
from slimrl.plugins import call
from slimrl_tools.plan.devices import find_machine

PAGE = """\
usage: slimrl plan @ FILE [--key VALUE ...] [--on DEVICES] [--no-measure]

Says what a run takes before it begins: memory by part on each device, the time of a step and of the whole run, what
most of the time goes to, and, where it does not fit, which settings save memory. FILE and the
settings are those of `slimrl rl` or `slimrl sft`; put `plan` in the place of `rl`.

Nothing is loaded and no weights are downloaded. It prints two numbers for memory: the expected one, and the largest,
if every conversation fills seq_len.

  --no-measure      estimate times. Else a decoding step and a training pack are timed on this machine, with random
                    weights of the real shape: ten seconds, or two minutes on a slow CPU; once for each model, as
                    `slimrl rl` takes the times from here
  --on DEVICES      plan for another machine, such as `h100x8`: its times are estimated. A name that is not known is
                    answered with the list of those that are

`slimrl rl` begins with two lines of this, refuses a run that cannot fit (`--plan warn` lets it try, `--plan off` plans
nothing), and sets the numbers beside the truth in its closing table. docs/plan.md says what each part is.

  slimrl plan @ examples/reverse_text/rl.toml --model.name Qwen/Qwen3-1.7B --on rtx3090
  slimrl plan @ examples/wordle/sft.toml --no-measure
"""


def run_plan_words(argv: Sequence[str]) -> int:
    """Run the `plan` command with the arguments `argv`. Returns the exit status. Raises UserError."""
    if HELP & {*argv}:
        return show(PAGE)
    words, options = read_options(argv)
    if options.on:
        find_machine(options.on)  # rejects an unknown name
    # Only files of `sft` have a section `data`.
    is_sft = names_section(words, "data") and not names_section(words, "orchestrator")
    config_class: type[Any] = SFTConfig if is_sft else RLConfig
    start = "slimrl_tools.commands.plan:run_plan"
    return run_command(config_class, words, lambda resolved: int(call(start, resolved, options)), name="plan")


def read_options(argv: Sequence[str]) -> tuple[list[str], Namespace]:
    """Separate the options of `slimrl plan` in `argv` from the run's settings. Return the settings, and the options
    that `PAGE` describes. The option `on` is empty for this machine. Raises UserError for a wrong value."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--on", default="")
    parser.add_argument("--no-measure", "--no_measure", dest="measures", action="store_false")
    try:
        options, rest = parser.parse_known_args(argv)
    except ArgumentError as error:
        raise UserError(f"{error}; `slimrl plan --help` shows what to write.") from None
    return rest, options
