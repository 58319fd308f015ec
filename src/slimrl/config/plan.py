"""The command line of `slimrl plan`: the words of `rl` or `sft`, and a few of its own. Needs no PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.errors import UserError

HELP = """\
usage: slimrl plan @ FILE [--key VALUE ...] [--on DEVICES] [--no-measure]

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

`slimrl rl` begins with two lines of this, refuses a run that cannot fit (`--plan warn` lets it try, `--plan off` plans
nothing), and sets the numbers beside the truth in its closing table. docs/plan.md says what each part is.

  slimrl plan @ examples/reverse_text/rl.toml
  slimrl plan @ examples/reverse_text/rl.toml --model.name Qwen/Qwen3-1.7B --on rtx3090x1,h100x1
  slimrl plan @ examples/wordle/rl.toml --model.lora.rank 16 --no-measure
  slimrl plan @ examples/wordle/sft.toml
"""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What `plan` has beside the settings of a run: `on` names other machines, empty for this one, and `measures` is
    whether times are measured."""

    on: str = ""
    measures: bool = True


def read_options(argv: Sequence[str]) -> tuple[list[str], PlanOptions]:
    """The words that are settings of the run, and the options. Raises UserError for an option without its value."""
    words, rest, on, measures = list(argv), list[str](), "", True
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name == "--on":
            on = value if equals else words.pop(0) if words else ""
            if not on or on.startswith("-"):
                raise UserError("--on: devices must follow, as in `--on rtx3090x1,h100x8`.")
        elif word.replace("_", "-") == "--no-measure":
            measures = False
        else:
            rest.append(word)
    return rest, PlanOptions(on, measures)
