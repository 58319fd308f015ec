"""Plans runs before anything is loaded: for the command `plan`, and for the two lines at the start of `rl`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from slimrl.config.data import ExpertDataConfig
from slimrl.config.rollout import EnvConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.find import is_builtin, load_taskset
from slimrl.errors import UserError, describe
from slimrl.io.files import explain_write_errors, replace_file
from slimrl.io.run_dir import RunDir
from slimrl.launch.placement import place_on
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.device import set_threads
from slimrl.trainer.checkpoint import read_progress
from slimrl.types import Taskset
from slimrl_tools.plan.advice import Proposal, proposals
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.experts import from_experts
from slimrl_tools.plan.machine import this_machine
from slimrl_tools.plan.measure import measure, recall_speeds
from slimrl_tools.plan.outlines import from_recorded
from slimrl_tools.plan.plan import Basis, Configs, Plan, plan_on
from slimrl_tools.plan.report import explain_refusal, two_lines
from slimrl_tools.plan.served import served_models
from slimrl_tools.plan.shape import read_shape
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Workload, from_assumption, from_earlier_run
from slimrl_tools.system import load_note, own_memory

OVERRIDE = "`--plan warn`"


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the plans of one run from its settings and basis."""

    config: Configs
    basis: Basis

    def on(self, machine: Machine, measures: bool = False) -> Plan:
        """Return the plan on a machine. If `measures` is True, measure times (only for this machine)."""
        config = place_for(self.config, machine)
        rough = plan_on(config, machine, self.basis)
        speeds: Speeds | None = None
        if measures and not rough.cannot_fit:
            capacity = min(place.capacity for place in rough.places)
            speeds = measure(config, rough.demand, rough.workload, capacity, rough.speeds)
        return plan_on(config, machine, self.basis, speeds) if speeds else rough

    def advice(self, plan: Plan) -> list[Proposal]:
        """Return changes that reduce the memory of the plan."""

        def replan(config: Configs, workload: Workload) -> Plan:
            return plan_on(config, plan.machine, replace(self.basis, workload=workload), plan.speeds)

        return proposals(plan, replan)


def make_planner(config: Configs, base: float) -> Planner:
    """Return the planner of a run. Raises UserError for a model without an accessible config."""
    shape = read_shape(config.model.name, config.model.lora)
    return Planner(config, Basis(shape, expect_workload(config), base, served_models(config)))


def place_for(config: Configs, machine: Machine) -> Configs:
    """Return the settings with `auto` resolved for a machine."""
    if isinstance(config, SFTConfig):
        return config
    return place_on(config, machine.num_gpus, lambda text: None)


def expect_workload(config: Configs) -> Workload:
    """Return the expected rollouts of a step. Downloads and builds nothing, and runs no code of the user's."""
    if isinstance(config, RLConfig):
        known = from_earlier_run(Path(config.output_dir), config.orchestrator.batch_size) or from_recorded(config)
        if known is not None:
            return known
    tasksets = _tasksets(_environments(config))
    try:
        played = from_experts(config, tasksets) if tasksets else None
    except UserError:  # such as for a user's file that an expert reads: a run without a warm-up needs no expert
        played = None
    return played or from_assumption(config)


def foretell(config: RLConfig, note: Callable[[str, str], None]) -> Plan | None:
    """Print a plan of a placed run in two lines. Return None if `plan` is off, if the run is on a cluster, or if the
    planner fails; a note reports that failure, and the run continues.

    Raises UserError if the run cannot fit this machine, unless `plan` is `warn`.
    """
    left = what_is_left(config)
    # The nodes of a cluster have other memory than this machine, and other speeds.
    if config.plan == "off" or not left.max_steps or config.deployment.type == "ray":
        return None
    try:
        plan, refusal = _foresee(left)
        lines = two_lines(plan)
    except UserError:
        raise
    except Exception as error:  # the planner may not know a config although its model can be trained
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


def what_is_left(config: RLConfig) -> RLConfig:
    """Return the settings with only the remaining steps of a resumed run."""
    try:
        progress = read_progress(Path(config.output_dir)) if config.resume else None
    except UserError:  # the checkpoint is damaged; resuming the run will put it aside
        progress = None
    if progress is None:
        return config
    steps = max(0, config.max_steps - progress.step)
    warmup = config.warmup.model_copy(update={"max_steps": 0})
    return config.model_copy(update={"max_steps": steps, "warmup": warmup})


def _foresee(config: RLConfig) -> tuple[Plan, str]:
    """Return the plan of a placed run, and the reason to refuse it; empty if it can run."""
    # As when the policy is loaded: set them before the first matrix product, which times this machine.
    set_threads(config.model.num_threads)
    keep_freed_memory()
    planner = make_planner(config, own_memory())
    machine = this_machine(Path(config.output_dir), config.model.device)
    rough = planner.on(machine)
    speeds = recall_speeds(config, rough.demand, rough.workload)
    plan = plan_on(config, machine, planner.basis, speeds) if speeds else rough
    return plan, explain_refusal(plan, planner.advice(plan), OVERRIDE) if plan.cannot_fit else ""


def keep_plan(plan: Plan | None, output_dir: Path) -> None:
    """Write the prediction to a run's directory, which this process has opened (`launch/run_dir.py`), for the closing
    table."""
    if plan is None:
        return
    times = {"step_s": round(plan.times.step_s, 3), "run_s": round(plan.times.run_s), "times": plan.speeds.source}
    content = json.dumps({"peak_gb": round(plan.peak_gb, 3)} | times, indent=1)
    with explain_write_errors(RunDir(output_dir).prediction):
        replace_file(RunDir(output_dir).prediction, [content.encode()])


def _environments(config: Configs) -> Sequence[EnvConfig]:
    if isinstance(config, RLConfig):
        return config.orchestrator.env
    return [config.data.env] if isinstance(config.data, ExpertDataConfig) else []


def _tasksets(envs: Sequence[EnvConfig]) -> list[Taskset]:
    """Return the tasksets, if all are slimrl's own, need no preparation and use no server: others may download or build
    something, or cost money."""
    # An argument that is a table names a server: a judge's or a partner's.
    if not all(is_builtin(env.id) and not any(isinstance(one, dict) for one in env.args.values()) for env in envs):
        return []
    tasksets = [load_taskset(env.id, env.args) for env in envs]
    return tasksets if all(type(taskset).prepare is Taskset.prepare for taskset in tasksets) else []
