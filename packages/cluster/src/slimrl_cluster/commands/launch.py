"""The command `launch`: a batch script that runs `rl` over the nodes of a cluster."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.files import replace_file
from slimrl.launch.early import check_data_files, check_model_names
from slimrl.launch.run_lock import refuse_run
from slimrl.launch.tasksets import check_environments
from slimrl_cluster.launch.options import HELP, read_options
from slimrl_cluster.launch.slurm import BY_RAY, batch_script


def run_launch(argv: Sequence[str]) -> int:
    """Check the settings of a run like `rl`, and write or print the script for it. Return the exit status. Raises
    UserError."""
    if {"-h", "--help"} & set(argv):
        sys.stdout.write(HELP)
        return 0
    words, options = read_options(argv)
    config = load(RLConfig, [*words, *BY_RAY], os.environ).config
    check_model_names(config)
    check_data_files(config)
    check_environments(config, make=False)
    if not config.resume:  # the script would continue a run that is there
        refuse_run(Path(config.output_dir))
    text = batch_script(config, words, options, Path.cwd())
    if not options.output:
        sys.stdout.write(text)
        return 0
    output = Path(options.output)
    if output.exists() and not options.force:
        raise UserError(f"{output} exists, and is not overwritten. Give -o another name, or overwrite it with --force.")
    replace_file(output, [text.encode()], chosen_by="-o")
    print(f"wrote {output}. Submit it: sbatch {shlex.quote(str(output))}")
    return 0
