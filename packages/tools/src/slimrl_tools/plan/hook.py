"""Prints the plan of a run in two lines at its start (`slimrl.hooks`), and stores the plan for the closing table."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from slimrl.config.run import RLConfig
from slimrl.errors import UserError, describe
from slimrl.io.files import explain_write_errors, replace_file
from slimrl.io.run_dir import RunDir
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.device import set_threads
from slimrl.monitor.console import RunConsole
from slimrl_tools.plan.measure import recall_speeds, this_machine
from slimrl_tools.plan.plan import Plan, make_planner, what_is_left
from slimrl_tools.plan.report import explain_refusal, two_lines
from slimrl_tools.system import load_note, own_memory


class PlanHook:
    """A hook that prints the plan, refuses a run that cannot fit, and stores the plan for the closing table."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Callable[[str, str], None]) -> None:
        """Plan a run and store the plan in `output_dir`, which this process has opened (`launch/open_dir.py`). The
        devices in `config` are already assigned. Raises UserError if the run cannot fit."""
        plan = foretell(config, note)
        if plan and output_dir:
            path, times = RunDir(output_dir).prediction, plan.times
            numbers = {"peak_gb": round(plan.peak_gb, 3), "step_s": round(times.step_s, 3), "run_s": round(times.run_s)}
            content = {**numbers, "times": plan.speeds.source}
            with explain_write_errors(path):
                replace_file(path, [json.dumps(content, indent=1).encode()])

    def end(self, output_dir: Path, step: int, console: RunConsole) -> None:
        """Do nothing: the closing table has read the plan already."""


HOOK = PlanHook()


def foretell(config: RLConfig, note: Callable[[str, str], None]) -> Plan | None:
    """Print the plan of a run in two lines, and return it. Return None if the setting `plan` is `off`, if no training
    step is left, or if the run is on a cluster. If the planner fails, print a note and return None, so that the run
    continues.

    Raises UserError if the run cannot fit this machine, unless `plan` is `warn`.
    """
    left = what_is_left(config)
    # The nodes of a cluster have other memory than this machine, and other speeds.
    if config.plan == "off" or not left.max_steps or config.deployment.type == "ray":
        return None
    # Set the number of threads first, as when a policy is loaded, because the planner then measures the speed of this
    # machine.
    set_threads(config.model.num_threads)
    keep_freed_memory()
    try:
        planner = make_planner(left, own_memory())
        plan = planner.on(this_machine(config.model.device))
        if speeds := recall_speeds(plan):
            plan = planner.on(plan.machine, speeds)
        refusal = explain_refusal(plan) if plan.cannot_fit else ""
        lines = two_lines(plan)
    except UserError:
        raise
    except Exception as error:  # the planner may fail for a model that can be trained
        note(f"plan: none, as planning failed ({describe(error)}); the run goes on", "yellow")
        return None
    for line in lines:
        note(line, "")
    if load := load_note(torch.get_num_threads()):
        note(load, "yellow")
    if refusal and config.plan == "refuse":
        raise UserError(refusal)
    if refusal:
        note(refusal, "yellow")
    return plan
