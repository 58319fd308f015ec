"""Implements the `launch` command. It writes a batch script that runs `rl` on the nodes of a SLURM cluster.

The script has three parts: the options of sbatch, the settings of this job, and the text of `slurm_job.sh`. This module
needs no PyTorch.
"""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.launch.open_dir import refuse_run
from slimrl.launch.start import check_data_files, check_model_names
from slimrl.launch.tasksets import check_environments

JOB = Path(__file__).with_name("slurm_job.sh")
BY_RAY = ("--deployment.type", "ray", "--deployment.address", "auto")
START_TIMEOUT_S = 600  # seconds until every node must have joined Ray
GRACE_S = 120  # the run is stopped and the job requeued this many seconds before the time limit
USAGE = "slimrl launch --slurm @ FILE [--key VALUE ...] --gpus_per_node N --time TIME [--nodes N] > SCRIPT"
ABOUT = """\
Prints a batch script for SLURM that runs `slimrl rl @ FILE ...` over the nodes of a job: it starts Ray on all of them
(the extra `ray`), waits until all are in, runs the command on the first node, and ends Ray. FILE and the settings are
those of `slimrl rl`, and are checked now; put `launch --slurm` in the place of `rl`. Nothing is submitted.
"""
EPILOG = """\
The command, its files and `output_dir` must be in a file system that all nodes see: so must the Python environment that
slimrl is installed in, whose programs the script puts first on the PATH. Two minutes before its time is up the script
ends the run, and puts the job back into the queue if the run has written a checkpoint since it started; SLURM does the
same when a node dies. The next start goes on by `--resume`, and so does the script when you submit it again.

  slimrl launch --slurm @ examples/reverse_text/rl.toml --nodes 4 --gpus_per_node 8 --time 04:00:00 > job.sh
  sbatch --partition=gpu job.sh

Laptop, one host, SLURM, Kubernetes: docs/cluster.md.
"""


def run_launch(argv: Sequence[str]) -> int:
    """Check a run's settings as `rl` does, and print the batch script. Return the exit status. Raises UserError if the
    settings are invalid."""
    options, settings = _parser().parse_known_args(argv)
    if not options.slurm:
        raise UserError(
            "launch needs --slurm, the kind of batch system that it writes a script for. For Kubernetes change "
            "deploy/kubernetes/rayjob.yaml (docs/cluster.md)."
        )
    config = load(RLConfig, [*settings, *BY_RAY], os.environ).config
    check_model_names(config)
    check_data_files(config)
    check_environments(config, make=False)
    if not config.resume:  # with `resume`, the script continues an existing run
        refuse_run(Path(config.output_dir))
    _check_gpus(config, options)
    print(_batch_script(config, settings, options, Path.cwd()), end="")
    return 0


def _batch_script(config: RLConfig, words: Sequence[str], options: argparse.Namespace, directory: Path) -> str:
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _sbatch_options(options, directory)),
        "",
        f"# Written by: slimrl launch --slurm {shlex.join(words)} ...",
        f"START_TIMEOUT_S={START_TIMEOUT_S}",
        f"gpus_per_node={options.gpus_per_node}",
        f"output_dir={shlex.quote(config.output_dir)}",
        f"command=({shlex.join(['slimrl', 'rl', *words, *BY_RAY])})",
        f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
        "",
    ]
    return "\n".join(lines) + "\n" + JOB.read_text(encoding="utf-8")


def _sbatch_options(options: argparse.Namespace, directory: Path) -> list[str]:
    return [
        "--job-name=slimrl",
        f"--nodes={options.nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={options.gpus_per_node}"] if options.gpus_per_node else []),
        "--exclusive",
        "--mem=0",
        f"--time={options.time}",
        f"--chdir={shlex.quote(str(directory))}",
        "--output=slimrl-%j.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{GRACE_S}",
    ]


def _check_gpus(config: RLConfig, options: argparse.Namespace) -> None:
    """Raise UserError if the settings need more GPUs than the nodes have. A trainer rank needs one GPU. A sampler needs
    `gpus_per_sampler` GPUs on one node."""
    if options.nodes < 1 or options.gpus_per_node < 0:
        raise UserError("launch needs --nodes of 1 or more, and --gpus_per_node of 0 or more.")
    deployment, there = config.deployment, options.nodes * options.gpus_per_node
    num_samplers = 0 if config.inference.base_url else deployment.num_samplers
    needed = num_samplers * deployment.gpus_per_sampler + deployment.num_trainers
    if there and needed > there:
        raise UserError(
            f"the samplers and trainers need {needed} GPUs, and the job has {there} (--nodes {options.nodes}, "
            f"--gpus_per_node {options.gpus_per_node}): raise one of these, or lower deployment.num_samplers, "
            "gpus_per_sampler or num_trainers."
        )
    if 0 < options.gpus_per_node < (each := deployment.gpus_per_sampler):
        raise UserError(
            f"deployment.gpus_per_sampler = {each} GPUs must be on one node, which has --gpus_per_node "
            f"{options.gpus_per_node}: raise that, or lower the setting."
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimrl launch", usage=USAGE, description=ABOUT, epilog=EPILOG, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--slurm", action="store_true", help="the kind of batch system, the only one so far")
    add("--nodes", type=int, default=1, metavar="N", help="nodes of the job; 1 if not given")
    about = "GPUs of each; 0 for nodes without"
    add("--gpus_per_node", "--gpus-per-node", type=int, required=True, metavar="N", help=about)
    about = "time limit, as sbatch reads it: 90 (minutes), 04:00:00, 2-00:00:00; over five minutes"
    add("--time", required=True, help=about)
    return parser
