"""The `rl` command: evaluate, warm up, train by reinforcement learning, evaluate again, report.

This module executes a run in one process. If a run has several processes, a deployment (`slimrl.deployments`) starts
and watches them.
"""

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.extensions import begin_hooks
from slimrl.launch.open_dir import open_training_dir
from slimrl.launch.parts import make_rl_parts, open_monitor
from slimrl.launch.placement import place
from slimrl.launch.sampling import SamplingHere
from slimrl.launch.supervised import prepare_warm_up, without_needless_warm_up
from slimrl.launch.tasksets import drop_made
from slimrl.launch.teacher import make_distillation
from slimrl.launch.training import Run
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import Sink
from slimrl.plugins import DEPLOYMENTS, call, load, names
from slimrl.trainer.checkpoint import read_progress


def run_rl(resolved: Resolved[RLConfig], more_sinks: Sequence[Sink] = ()) -> int:
    """Run the `rl` command: evaluate, warm up if the settings ask for it, train, evaluate again, plot and report.

    All objects are created first, so that a mistake in the settings is reported before the first slow stage.
    """
    began, console = time.monotonic(), RunConsole()
    # A run in several processes starts this command again, so it needs the command line (a call from Python has none),
    # the plug-in slimrl-cluster and uvicorn. `auto` chooses several processes only if all of these are present.
    can_be_apart = resolved.argv is not None and "processes" in names(DEPLOYMENTS) and find_spec("uvicorn") is not None
    config = place(resolved.config, console.note, can_be_apart=can_be_apart)
    if config.deployment.are_apart:
        deployment = load(DEPLOYMENTS, config.deployment.type, "the deployment")
        drop_made()
        # The trainer logs that a warm-up is needless, and opens the directory, so do neither here.
        begin_hooks(without_needless_warm_up(config, lambda text: None), None, console.note)
        return int(call(deployment.run, config, resolved.argv, console.note))
    config = without_needless_warm_up(config, console.note)
    with open_training_dir(resolved, Path(config.output_dir), config.resume, console.note) as output_dir:
        begin_hooks(config, output_dir, console.note)
        past = read_progress(output_dir) if config.resume else None
        with open_monitor(resolved, console, past.step if past else 0) as monitor:
            # Create and check all objects; this loads the model. `make_distillation` returns None without a teacher.
            parts = make_rl_parts(config, output_dir, console)
            sampling = SamplingHere(parts, make_distillation(parts), past)
            warmup = prepare_warm_up(parts, past, parts.tasksets)
            run = Run(parts, sampling, past, began)
            stages = run.train(warmup, monitor, more_sinks)
        run.report(stages)
    return 0
