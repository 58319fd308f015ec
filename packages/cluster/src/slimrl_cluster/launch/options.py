"""The command line of `slimrl launch`: the words of `rl`, and a few of its own. Needs no PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass

from slimrl.errors import UserError

HELP = """\
usage: slimrl launch --slurm @ FILE [--key VALUE ...] --gpus_per_node N --time TIME [--nodes N] [-o SCRIPT]

Writes a batch script for SLURM that runs `slimrl rl @ FILE ...` over the nodes of a job: it starts Ray on all of them
(the extra `ray`), waits until all are in, runs the command on the first node, and ends Ray. FILE and the settings are
those of `slimrl rl`, and are checked now; put `launch --slurm` in the place of `rl`. Nothing is submitted.

  --nodes N           nodes of the job; 1 if not given
  --gpus_per_node N   GPUs of each; 0 for nodes without
  --time TIME         time limit, as sbatch reads it: 90 (minutes), 04:00:00, 2-00:00:00; over five minutes
  --partition NAME    where to run
  --account NAME      who pays
  --setup LINE        a line for the script before anything is started, such as "module load cuda"; again for another
  --sbatch OPTION     any other option of sbatch, such as "--qos=high"; again for another. Options given so count most
  -o, --output FILE   where to write the script; without it, it is printed
  --force             overwrite that file

The command, its files and `output_dir` must be in a file system that all nodes see: so must the Python environment that
slimrl is installed in, whose programs the script puts first on the PATH. Two minutes before its time is up the script
ends the run, and puts the job back into the queue if the run has written a checkpoint since it started; SLURM does the
same when a node dies. The next start goes on by `--resume`, and so does the script when you submit it again.

  slimrl launch --slurm @ examples/reverse_text/rl.toml --nodes 4 --gpus_per_node 8 --time 04:00:00 -o job.sh
  sbatch job.sh

Laptop, one host, SLURM, Kubernetes: docs/cluster.md.
"""

VALUES = ("--nodes", "--gpus_per_node", "--time", "--partition", "--account", "--output", "-o")
REPEATED = ("--setup", "--sbatch")
SWITCHES = ("--slurm", "--force")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options of `launch` besides the settings of a run; `output` is empty for the standard output. sbatch checks
    the values that are its own."""

    nodes: int
    gpus_per_node: int
    time: str
    partition: str = ""
    account: str = ""
    setup: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    output: str = ""
    force: bool = False


def read_options(argv: Sequence[str]) -> tuple[list[str], LaunchOptions]:
    """Return the words that are settings of the run, and the options. Raises UserError for a missing or wrong value."""
    words, rest = list(argv), list[str]()
    given: dict[str, list[str]] = {}
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        name = flag if flag == "-o" else "--" + flag[2:].replace("-", "_")
        if not flag.startswith("-") or name not in (*VALUES, *REPEATED, *SWITCHES):
            rest.append(word)
            continue
        if name not in SWITCHES and not equals:
            value = words.pop(0) if words else ""
        if name not in SWITCHES and (not value or "\n" in value):
            raise UserError(f"{name}: one line must follow. `slimrl launch --help` has examples.")
        given.setdefault("--output" if name == "-o" else name, []).append(value)
    if "--slurm" not in given:
        raise UserError(
            "launch needs --slurm, the kind of batch system that it writes a script for. For Kubernetes change "
            "deploy/kubernetes/rayjob.yaml (docs/cluster.md)."
        )
    last = {name: values[-1] for name, values in given.items()}
    if not last.get("--time"):
        raise UserError("--time: a time limit is needed, as in `--time 04:00:00`. `sinfo` shows each partition's own.")
    options = LaunchOptions(
        nodes=_number(last, "--nodes", least=1, default="1"),
        gpus_per_node=_number(last, "--gpus_per_node", least=0),
        time=last.get("--time", ""),
        partition=last.get("--partition", ""),
        account=last.get("--account", ""),
        setup=tuple(given.get("--setup", ())),
        sbatch=tuple(given.get("--sbatch", ())),
        output=last.get("--output", ""),
        force="--force" in given,
    )
    return rest, options


def _number(given: dict[str, str], name: str, least: int, default: str = "") -> int:
    text = given.get(name, default)
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise UserError(f"{name}: found {text or 'nothing'}, expected a whole number of {least} or more.")
    return int(text)
