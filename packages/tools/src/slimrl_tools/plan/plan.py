"""A plan: what a run takes on a machine, in memory, on disk and in time, whether it fits, and what would make it fit.

`plan_on` is a function of settings, machine and basis: it loads and downloads nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.config.run import RLConfig, SFTConfig
from slimrl_tools.plan.demand import Demand
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.disk import disk_parts
from slimrl_tools.plan.memory import Part, ProcessMemory, at_once, by_device
from slimrl_tools.plan.processes import compute_of, demand_of, processes_of
from slimrl_tools.plan.served import ServedModel
from slimrl_tools.plan.shape import Shape
from slimrl_tools.plan.timing import Speeds, Times, rough_speeds, times_of
from slimrl_tools.plan.workload import Workload, worst_rows

Configs = RLConfig | SFTConfig
KEPT_FREE = 0.02  # of a CPU's memory, for the system


@dataclass(frozen=True, slots=True)
class Place:
    """What a device must hold: `least` is in use at once, `expected` is with what allocators keep, and `most` is
    `expected` if every conversation fills `seq_len`. `capacity` is what it has for them."""

    device: str
    processes: tuple[ProcessMemory, ...]
    least: float
    expected: float
    most: float
    capacity: float

    @property
    def cannot_fit(self) -> bool:
        """Whether there is no way for it to fit."""
        return self.least > self.capacity

    @property
    def may_not_fit(self) -> bool:
        """Whether it is likely not to fit, or not if conversations get long."""
        return max(self.expected, self.most) > self.capacity


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run takes. `speeds` say how the times are known."""

    config: Configs
    machine: Machine
    demand: Demand
    workload: Workload
    places: tuple[Place, ...]
    disk: Sequence[Part]
    times: Times
    speeds: Speeds

    @property
    def cannot_fit(self) -> bool:
        """Whether a device cannot hold what the run needs at once."""
        return any(place.cannot_fit for place in self.places)

    @property
    def fits(self) -> bool:
        """Whether all is expected to fit."""
        return not any(place.expected > place.capacity for place in self.places)

    @property
    def tightest(self) -> Place:
        """The device with the least left."""
        return max(self.places, key=lambda place: place.expected / place.capacity)

    @property
    def trainer(self) -> ProcessMemory:
        """The process whose memory `memory/peak_gb` counts."""
        return next(one for place in self.places for one in place.processes if one.name in TRAINERS)

    @property
    def peak_gb(self) -> float:
        """What `memory/peak_gb` should come to: of a GPU its tensors, of a process all it has."""
        trainer = self.trainer
        return (trainer.peak if trainer.device == "cpu" else trainer.tensors) / 1e9

    @property
    def disk_bytes(self) -> float:
        """The bytes on disk at most."""
        return sum(part.bytes for part in self.disk)


TRAINERS = ("one process", "sft", "trainer", "trainer, rank 0")


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan is made of beside settings and machine: the model's shape, the rollouts of a step, the bytes of a
    process with PyTorch and transformers, and the models that other programs serve to the run."""

    shape: Shape
    workload: Workload
    base: float
    served: Sequence[ServedModel] = ()


def plan_on(config: Configs, machine: Machine, basis: Basis, speeds: Speeds | None = None) -> Plan:
    """The plan of a placed run on a machine. Without `speeds` they are estimated."""
    workload = basis.workload
    compute = compute_of(config, machine)
    micro = config.trainer.micro_batch_tokens if isinstance(config, RLConfig) else config.micro_batch_tokens
    demand = demand_of(config, basis.shape, compute, workload.rows(micro), machine)
    worst = demand_of(config, basis.shape, compute, worst_rows(config), machine)
    beside = [one for model in basis.served for one in model.processes("cuda:0" if machine.num_gpus else "cpu")]
    found = [*processes_of(config, demand, basis.base), *beside]
    at_worst = by_device([*processes_of(config, worst, basis.base), *beside])
    places = [_place(device, processes, at_worst[device], machine) for device, processes in by_device(found).items()]
    known = speeds or rough_speeds(demand, machine.device, workload)
    times = times_of(config, demand, workload, known)
    disk = disk_parts(config, demand, workload)
    return Plan(config, machine, demand, workload, tuple(places), disk, times, known)


def _place(device: str, processes: Sequence[ProcessMemory], worst: Sequence[ProcessMemory], machine: Machine) -> Place:
    capacity = machine.memory * (1 - KEPT_FREE) if device == "cpu" else machine.device_at(device).memory
    # Processes on one GPU have a context each, which `ProcessMemory.base` counts.
    expected, most = (at_once(some) + sum(one.slack for one in some) for some in (processes, worst))
    return Place(device, tuple(processes), at_once(processes), expected, max(expected, most), capacity)


def saving_of(plan: Plan, changed: Plan) -> float:
    """The bytes that a change saves where it is tightest."""
    before, after = plan.tightest, {place.device: place for place in changed.places}
    return before.expected - after[before.device].expected if before.device in after else 0.0


def with_settings(config: Configs, changes: Mapping[str, object]) -> Configs:
    """The settings with other values at dotted keys."""

    def replaced(config: Any, path: Sequence[str], value: object) -> Any:
        first, *rest = path
        return config.model_copy(update={first: replaced(vars(config)[first], rest, value) if rest else value})

    for key, value in changes.items():
        config = replaced(config, key.split("."), value)
    return config
