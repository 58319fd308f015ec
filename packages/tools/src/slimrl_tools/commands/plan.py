"""The `plan` command: predicts the memory and time of a run before anything is loaded."""

from argparse import Namespace
from dataclasses import replace

import torch

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.errors import UserError
from slimrl.models.device import set_threads
from slimrl_tools.plan.devices import find_machine
from slimrl_tools.plan.measure import measure, this_machine
from slimrl_tools.plan.plan import make_planner
from slimrl_tools.plan.report import full_report
from slimrl_tools.system import load_note, own_memory


def run_plan(resolved: Resolved[RLConfig] | Resolved[SFTConfig], options: Namespace) -> int:
    """Print the plan of a run on this machine, or on the machine `options.on`. Returns 1 if the run does not fit this
    machine, else 0."""
    config = resolved.config
    if config.resume:
        raise UserError(
            "`resume` has no effect on a plan: leave it out. `rl --resume` prints the plan of the remaining steps."
        )
    set_threads(config.model.num_threads)
    planner = make_planner(config, own_memory())
    if options.on:
        # On another machine, `auto` selects device and dtype anew.
        model = config.model.model_copy(update={"device": "auto"})
        planner = replace(planner, config=config.model_copy(update={"model": model}))
        plan, load = planner.on(find_machine(options.on)), ""
    else:
        load = load_note(torch.get_num_threads())
        machine = this_machine(config.model.device)
        plan = planner.on(machine)
        if options.measures and not plan.cannot_fit:
            plan = planner.on(machine, measure(plan))
    print(*full_report(plan), sep="\n")
    if load:
        print(load)
    return int(plan.cannot_fit)
