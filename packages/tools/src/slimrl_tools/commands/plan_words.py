"""Reads the words of `slimrl plan` before anything that needs PyTorch is imported."""

from collections.abc import Sequence
from typing import Any

from slimrl.config.reading.flags import names_section
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.io.invocation import HELP, show
from slimrl.launch.start import run_command
from slimrl.plugins import call
from slimrl_tools.plan.devices import find_machines
from slimrl_tools.plan.options import HELP as PAGE
from slimrl_tools.plan.options import read_options


def run_plan_words(argv: Sequence[str]) -> int:
    """Run the `plan` command with these words. Returns the exit status. Raises UserError."""
    if HELP & {*argv}:
        return show(PAGE)
    words, options = read_options(argv)
    if options.on:
        find_machines(options.on)  # rejects an unknown name
    # Only files of `sft` have a section `data`.
    is_sft = names_section(words, "data") and not names_section(words, "orchestrator")
    config_class: type[Any] = SFTConfig if is_sft else RLConfig
    start = "slimrl_tools.commands.plan:run_plan"
    return run_command(config_class, words, lambda resolved: int(call(start, resolved, options)), name="plan")
