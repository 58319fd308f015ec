"""Makes the plans of a run, before anything is loaded."""

from dataclasses import dataclass
from pathlib import Path

from slimrl.config.data import ExpertDataConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.environments.find import is_builtin, load_taskset
from slimrl.errors import UserError
from slimrl.launch.placement import place_on
from slimrl.trainer.checkpoint import read_progress
from slimrl.types import Taskset
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.guesses import from_assumption, from_experts
from slimrl_tools.plan.measure import measure
from slimrl_tools.plan.plan import Basis, Configs, Plan, plan_on
from slimrl_tools.plan.report import Proposal, proposals
from slimrl_tools.plan.served import served_models
from slimrl_tools.plan.shape import read_shape
from slimrl_tools.plan.workload import Workload, from_earlier_run, from_recorded


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes the plans of one run from its settings and basis."""

    config: Configs
    basis: Basis

    def on(self, machine: Machine, measures: bool = False) -> Plan:
        """Return the plan on a machine. If `measures` is True, measure times (only for this machine)."""
        config = place_for(self.config, machine)
        plan = plan_on(config, machine, self.basis)
        if not measures or plan.cannot_fit:
            return plan
        capacity = min(place.capacity for place in plan.places)
        speeds = measure(config, plan.demand, plan.workload, capacity, plan.speeds)
        return plan_on(config, machine, self.basis, speeds)

    def advice(self, plan: Plan) -> list[Proposal]:
        """Return changes that reduce the memory of the plan."""
        return proposals(plan, lambda config: plan_on(config, plan.machine, self.basis, plan.speeds))


def make_planner(config: Configs, base: float) -> Planner:
    """Return the planner of a run. Raises UserError for a model without an accessible config."""
    shape = read_shape(config.model.name, config.model.lora)
    return Planner(config, Basis(shape, expect_workload(config), base, served_models(config)))


def place_for(config: Configs, machine: Machine) -> Configs:
    """Return the settings with `auto` resolved for a machine."""
    return config if isinstance(config, SFTConfig) else place_on(config, machine.num_gpus, lambda text: None)


def expect_workload(config: Configs) -> Workload:
    """Return the expected rollouts of a step. Downloads and builds nothing, and runs no code of the user's."""
    if isinstance(config, RLConfig):
        known = from_earlier_run(Path(config.output_dir), config.orchestrator.batch_size) or from_recorded(config)
        if known is not None:
            return known
    try:
        played = from_experts(config, _tasksets(config))
    except UserError:  # such as for a user's file that an expert reads: a run without a warm-up needs no expert
        played = None
    return played or from_assumption(config)


def _tasksets(config: Configs) -> list[Taskset]:
    """Return the tasksets, if all are slimrl's own, need no preparation and use no server: others may download or build
    something, or cost money."""
    if isinstance(config, RLConfig):
        envs = config.orchestrator.env
    else:
        envs = [config.data.env] if isinstance(config.data, ExpertDataConfig) else []
    # An argument that is a table names a server: a judge's or a partner's.
    if not all(is_builtin(env.id) and not any(isinstance(one, dict) for one in env.args.values()) for env in envs):
        return []
    tasksets = [load_taskset(env.id, env.args) for env in envs]
    return tasksets if all(type(taskset).prepare is Taskset.prepare for taskset in tasksets) else []


def what_is_left(config: RLConfig) -> RLConfig:
    """Return the settings with only the remaining steps of a resumed run."""
    try:
        progress = read_progress(Path(config.output_dir)) if config.resume else None
    except UserError:  # the checkpoint is damaged; resuming the run will put it aside
        progress = None
    if progress is None:
        return config
    warmup = config.warmup.model_copy(update={"max_steps": 0})
    return config.model_copy(update={"max_steps": max(0, config.max_steps - progress.step), "warmup": warmup})
