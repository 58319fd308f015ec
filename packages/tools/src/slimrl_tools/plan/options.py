"""Reads the command line of `slimrl plan`: the settings of `rl` or `sft`, and its own options. Imports no PyTorch."""

import math
from argparse import ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any

from slimrl.config.reading.flags import names_section
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.io.invocation import HELP, show
from slimrl.launch.start import run_command
from slimrl.plugins import call
from slimrl_tools.plan.devices import find_machines

PAGE = """\
usage: slimrl plan @ FILE [--key VALUE ...] [--on DEVICES] [--no-measure]
       slimrl plan @ FILE [--key VALUE ...] --run DIR [--gpus N,...] [--on DEVICE] [--price P]

Says what a run takes before it begins: memory by part on each device, disk, the time of a step and of the whole run,
what most of the time goes to, and, where it does not fit, what to change and how much each change saves. FILE and the
settings are those of `slimrl rl` or `slimrl sft`; put `plan` in the place of `rl`.

Nothing is loaded and no weights are downloaded. The model's shape comes from its config.json, or a `.gguf` file's
header. How long rollouts get is not known before: it is taken from the rollouts of an earlier run in the same
output_dir, else from a recorded run of the same environment, else assumed; the report says which. Two numbers for
memory: what is expected, and what it is at most, if every conversation fills seq_len. With `--resume true` it is what
the run in output_dir has still to do.

  --no-measure      estimate times. Else a decoding step and a training pack are timed on this machine, with random
                    weights of the real shape: ten seconds, or two minutes on a slow CPU; once for each model, as
                    `slimrl rl` takes the times from here
  --on DEVICES      plan for other machines, such as `rtx3090x1,h100x8`: their times are estimated. A name that is not
                    known is answered with the list of those that are

With --run the pipeline is simulated instead: replicas that sample, ranks that train, groups in flight, weights on their
way. The episodes are those that the run in DIR has recorded, drawn again and again: their turns, lengths and the time
that environments took over each. For each number of GPUs a line says how many should sample and how many train, how
fast that is, how old the rollouts are, who waits, and what it costs.

  --run DIR         output_dir of an `rl` run of a few steps, best at max_async_level 0. Without --on, GPUs are taken to
                    be like the device of this run, and the model is stretched until it takes as long as the run did
  --gpus N,...      numbers of GPUs (default: 1,2,4,8; or as many as --on names)
  --price P         money for a GPU-hour, in any currency; without it costs are in GPU-hours

`slimrl rl` begins with two lines of this, refuses a run that cannot fit (`--plan warn` lets it try, `--plan off` plans
nothing), and sets the numbers beside the truth in its closing table. docs/plan.md says what each part is.

  slimrl plan @ examples/reverse_text/rl.toml
  slimrl plan @ examples/reverse_text/rl.toml --model.name Qwen/Qwen3-1.7B --on rtx3090x1,h100x1
  slimrl plan @ examples/wordle/rl.toml --model.lora.rank 16 --no-measure
  slimrl plan @ examples/wordle/sft.toml
  slimrl plan @ examples/wordle/rl.toml --run outputs/wordle --gpus 2,4,8,16 --price 2.5
  slimrl plan @ examples/wordle/rl.toml --run outputs/wordle --orchestrator.batch_size 1024 --on h100 --gpus 8,64,512
"""

MOST_GPUS = 10_000


def run_plan_words(argv: Sequence[str]) -> int:
    """Run the `plan` command with the arguments `argv`. Returns the exit status. Raises UserError."""
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


def read_options(argv: Sequence[str]) -> tuple[list[str], Namespace]:
    """Separate the options of `slimrl plan` in `argv` from the run's settings. Return the settings, and the options
    that `PAGE` describes. The option `on` is empty for this machine, and `run` is empty if no pipeline is simulated.
    Raises UserError for a wrong value."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--on", default="")
    parser.add_argument("--no-measure", "--no_measure", dest="measures", action="store_false")
    parser.add_argument("--run", default="")
    parser.add_argument("--gpus", type=gpu_numbers, default=())
    parser.add_argument("--price", type=price, default=0.0)
    try:
        options, rest = parser.parse_known_args(argv)
    except ArgumentError as error:
        raise UserError(f"{error}; `slimrl plan --help` shows what to write.") from None
    if (options.gpus or options.price) and not options.run:
        raise UserError("--gpus and --price act only with --run DIR, whose episodes the pipeline is simulated with.")
    return rest, options


def gpu_numbers(text: str) -> tuple[int, ...]:
    """Parse a list of numbers of GPUs, such as `2,4,8`."""
    numbers = tuple(dict.fromkeys(map(int, text.split(","))))
    if not all(1 <= num <= MOST_GPUS for num in numbers):
        raise ArgumentTypeError(f"{text} are not numbers from 1 to {MOST_GPUS:,}")
    return numbers


def price(text: str) -> float:
    """Parse the price of a GPU-hour."""
    if not 0 < (given := float(text)) < math.inf:
        raise ArgumentTypeError(f"{text} is not a price")
    return given
