"""The batch script of `slimrl launch --slurm`: options for sbatch, the settings of this job, and `slurm_job.sh`."""

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import UserError

JOB = Path(__file__).with_name("slurm_job.sh")
BY_RAY = ("--deployment.type", "ray", "--deployment.address", "auto")
START_TIMEOUT_S = 600  # seconds until every node must have joined Ray
GRACE_S = 120  # seconds before the time limit at which the run is stopped and the job requeued


def batch_script(config: RLConfig, words: Sequence[str], options: Namespace, directory: Path) -> str:
    """Return the text of the script that runs `slimrl rl WORDS` from a directory, by the options of `slimrl launch`.
    Raises UserError if the nodes have too few GPUs for the settings."""
    _check_gpus(config, options)
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
        *options.setup,
        "",
    ]
    return "\n".join(lines) + "\n" + JOB.read_text(encoding="utf-8")


def _sbatch_options(options: Namespace, directory: Path) -> list[str]:
    """Return the options for sbatch. The job reserves whole nodes, because Ray uses all resources of a node."""
    return [
        "--job-name=slimrl",
        f"--nodes={options.nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={options.gpus_per_node}"] if options.gpus_per_node else []),
        "--exclusive",
        "--mem=0",
        f"--time={options.time}",
        *([f"--partition={options.partition}"] if options.partition else []),
        *([f"--account={options.account}"] if options.account else []),
        f"--chdir={shlex.quote(str(directory))}",
        "--output=slimrl-%j.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{GRACE_S}",
        *options.sbatch,
    ]


def _check_gpus(config: RLConfig, options: Namespace) -> None:
    """Raise UserError if the settings need more GPUs than the nodes have. A trainer rank needs one GPU, a sampler
    `gpus_per_sampler`."""
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
