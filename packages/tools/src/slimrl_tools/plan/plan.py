"""Plans a run on a machine: its memory, disk and time, whether it fits, and changes that would make it fit.

`plan_on` depends only on settings, machine, basis and speeds: it loads and downloads nothing.
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
KEPT_FREE = 0.02  # share of a CPU's memory, for the system


@dataclass(frozen=True, slots=True)
class Place:
    """The memory that a device must hold, in bytes: `least` is in use at once, `expected` includes the memory that
    allocators keep, and `most` is `expected` if every conversation fills `seq_len`. `capacity` is available."""

    device: str
    processes: tuple[ProcessMemory, ...]
    least: float
    expected: float
    most: float
    capacity: float

    @property
    def cannot_fit(self) -> bool:
        """Return True if it cannot fit in any case."""
        return self.least > self.capacity

    @property
    def may_not_fit(self) -> bool:
        """Return True if it is unlikely to fit, or does not fit with long conversations."""
        return max(self.expected, self.most) > self.capacity


@dataclass(frozen=True, slots=True)
class Plan:
    """The resources of a run. `speeds` records the source of the times."""

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
        """Return True if a device cannot hold the peak bytes in use."""
        return any(place.cannot_fit for place in self.places)

    @property
    def fits(self) -> bool:
        """Return True if everything is expected to fit."""
        return not any(place.expected > place.capacity for place in self.places)

    @property
    def tightest(self) -> Place:
        """Return the device with the least left."""
        return max(self.places, key=lambda place: place.expected / place.capacity)

    @property
    def trainer(self) -> ProcessMemory:
        """Return the process that `memory/peak_gb` measures."""
        return next(one for place in self.places for one in place.processes if one.name in TRAINERS)

    @property
    def peak_gb(self) -> float:
        """Return the expected `memory/peak_gb`: the tensors on a GPU, all of the process on a CPU."""
        trainer = self.trainer
        return (trainer.peak if trainer.device == "cpu" else trainer.tensors) / 1e9

    @property
    def disk_bytes(self) -> float:
        """Return the largest use of the disk in bytes."""
        return sum(part.bytes for part in self.disk)


TRAINERS = ("one process", "sft", "trainer", "trainer, rank 0")


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of a plan beside settings and machine: the model's shape, the rollouts of a step, the bytes of a
    process with PyTorch and transformers, and the models that other programs serve to the run."""

    shape: Shape
    workload: Workload
    base: float
    served: Sequence[ServedModel] = ()


def plan_on(config: Configs, machine: Machine, basis: Basis, speeds: Speeds | None = None) -> Plan:
    """Plan a placed run on a machine. Without `speeds`, estimate them."""
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
    """Return the bytes that a change saves on the tightest device."""
    before, after = plan.tightest, {place.device: place for place in changed.places}
    return before.expected - after[before.device].expected if before.device in after else 0.0


def with_settings(config: Configs, changes: Mapping[str, object]) -> Configs:
    """Return the settings with other values at dotted keys."""

    def replaced(config: Any, path: Sequence[str], value: object) -> Any:
        first, *rest = path
        return config.model_copy(update={first: replaced(vars(config)[first], rest, value) if rest else value})

    for key, value in changes.items():
        config = replaced(config, key.split("."), value)
    return config
