"""The `compare` command: it compares two saved evaluations task by task."""

from collections.abc import Sequence
from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.invocation import HELP, show
from slimrl.plugins import call

PAGE = """\
usage: slimrl compare FIRST SECOND

Compares two evaluations of the same tasks, task by task: the difference of the means with its 95% interval (paired
bootstrap), in how many tasks the first is ahead and behind, and how probable so uneven a split would be if neither were
better (p of the exact sign test, which for right and wrong answers is McNemar's).

FIRST and SECOND are the output directories of `slimrl eval` or of a finished `slimrl rl`, or two files in their
held_out/.

  slimrl compare outputs/eval-rl outputs/eval-sft
  slimrl compare outputs/eval/held_out/eval_greedy.jsonl outputs/eval/held_out/eval_sampled.jsonl
"""


def run_compare(argv: Sequence[str]) -> int:
    """Run the `compare` command: show the differences between two evaluations in each decoding mode. Returns the exit
    status. Raises UserError."""
    if HELP & {*argv}:
        return show(PAGE)
    if len(argv) != 2 or any(word.startswith("-") for word in argv):
        raise UserError("compare takes two things to compare; `slimrl compare --help` has examples.")
    call("slimrl.eval.report:show_comparison", *map(Path, argv))
    return 0
