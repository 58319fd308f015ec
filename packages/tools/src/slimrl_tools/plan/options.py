"""The command line of `slimrl plan`: the words of `rl` or `sft`, and a few of its own. Needs no PyTorch."""

import math
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slimrl.errors import UserError

HELP = """\
usage: slimrl plan @ FILE [--key VALUE ...] [--on DEVICES] [--no-measure]
       slimrl plan @ FILE [--key VALUE ...] --run DIR [--gpus N,...] [--on DEVICE] [--price P] [--plot FILE]

Says what a run takes before it begins: memory by part on each device, disk, the time of a step and of the whole run,
what most of the time goes to, and, where it does not fit, what to change and how much each change saves. FILE and the
settings are those of `slimrl rl` or `slimrl sft`; put `plan` in the place of `rl`.

Nothing is loaded and no weights are downloaded. The model's shape comes from its config.json, or a `.gguf` file's
header. How long rollouts get is not known before: it is taken from the rollouts of an earlier run in the same
output_dir, else from a recorded run of the same recipe, else from the environment's scripted expert, else assumed; the
report says which. Two numbers for memory: what is expected, and what it is at most, if every conversation fills
seq_len. With `--resume true` it is what the run in output_dir has still to do.

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
  --plot FILE       draw throughput, staleness and cost from 1 to 1,000 GPUs, at levels 0, 1 and 2; some minutes

`slimrl rl` begins with two lines of this, refuses a run that cannot fit (`--plan warn` lets it try, `--plan off` plans
nothing), and sets the numbers beside the truth in its closing table. docs/plan.md says what each part is.

  slimrl plan @ examples/reverse_text/rl.toml
  slimrl plan @ examples/reverse_text/rl.toml --model.name Qwen/Qwen3-1.7B --on rtx3090x1,h100x1
  slimrl plan @ examples/wordle/rl.toml --model.lora.rank 16 --no-measure
  slimrl plan @ examples/wordle/sft.toml
  slimrl plan @ examples/wordle/rl.toml --run outputs/wordle --gpus 2,4,8,16 --price 2.5
  slimrl plan @ examples/wordle/rl.toml --run outputs/wordle --orchestrator.batch_size 1024 --on h100 --plot plan.png
"""


MOST_GPUS = 10_000
VALUES = {  # the options with a value, and its form
    "--on": "devices must follow, as in `--on rtx3090x1,h100x8`",
    "--run": "the output_dir of a recorded `rl` run must follow, as in `--run outputs/wordle`",
    "--gpus": f"numbers of GPUs from 1 to {MOST_GPUS:,} must follow, as in `--gpus 2,4,8`",
    "--price": "the money for a GPU-hour must follow, as in `--price 2.5`",
    "--plot": "the file to draw must follow, as in `--plot pipeline.png`",
}
OF_RUN = "--gpus", "--price", "--plot"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of `plan` beside the settings of a run, as HELP describes them. `on` is empty for this machine, and
    `run` if no pipeline is simulated."""

    on: str = ""
    measures: bool = True
    run: str = ""
    gpus: tuple[int, ...] = ()
    price: float = 0.0
    plot: str = ""


def read_options(argv: Sequence[str]) -> tuple[list[str], PlanOptions]:
    """Separate the settings of the run from the options; return both. Raises UserError for a wrong value."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False, argument_default=SUPPRESS)
    for name in VALUES:
        parser.add_argument(name, nargs="?", const="")
    parser.add_argument("--no-measure", "--no_measure", dest="measures", action="store_false")
    known, rest = parser.parse_known_args(argv)
    found = vars(known)
    for name, text in VALUES.items():
        if found.get(name[2:]) == "":
            raise UserError(f"{name}: {text}.")
    if "run" not in found and (useless := [name for name in OF_RUN if name[2:] in found]):
        raise UserError(
            f"{', '.join(useless)} can act only with --run DIR, whose episodes the pipeline is simulated with."
        )
    read: dict[str, Callable[[str], Any]] = {"gpus": _gpus, "price": _price}
    return rest, PlanOptions(**found | {name: read[name](found[name]) for name in read.keys() & found})


def _gpus(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= MOST_GPUS for part in parts):
        raise UserError(f"--gpus {text}: {VALUES['--gpus']}.")
    return tuple(dict.fromkeys(map(int, parts)))


def _price(text: str) -> float:
    with suppress(ValueError):
        if 0 < (price := float(text)) < math.inf:
            return price
    raise UserError(f"--price {text}: {VALUES['--price']}.")
