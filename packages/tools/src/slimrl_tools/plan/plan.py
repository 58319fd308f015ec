"""Predicts the memory of a run's processes and its time on a machine, and whether the run fits."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig
from slimrl.errors import UserError
from slimrl.launch.placement import place
from slimrl.models.native import ops
from slimrl.trainer.checkpoint import read_progress
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.memory import FLOAT, HALF, Compute, Demand, Part, ProcessMemory, process
from slimrl_tools.plan.shape import Shape, read_shape
from slimrl_tools.plan.timing import Speeds, Times, rough_speeds, times_of
from slimrl_tools.plan.workload import Rows, Workload, expect_workload, worst_rows

Configs = RLConfig | SFTConfig
KEPT_FREE = 0.02  # share of the main memory that is left to the system
VLLM_BASE = 1_500_000_000  # bytes of vLLM beside weights and cache: CUDA context, graphs, workspaces
# Bytes of environments that need more than a few megabytes. wiki-search loads Chroma and an embedding model.
ENVIRONMENTS = {"wiki-search": 300_000_000}
TRAINERS = ("one process", "sft", "trainer", "trainer, rank 0")


@dataclass(frozen=True, slots=True)
class Place:
    """The memory that a run needs on a device, in bytes. `least` is the peak of used memory. `expected` also includes
    freed memory that allocators keep. `most` is the expected memory if every conversation fills `seq_len`. `capacity`
    is the available memory."""

    device: str
    processes: tuple[ProcessMemory, ...]
    least: float
    expected: float
    most: float
    capacity: float

    @property
    def may_not_fit(self) -> bool:
        """Return True if the expected memory, or the memory with the longest conversations, exceeds the capacity."""
        return max(self.expected, self.most) > self.capacity


@dataclass(frozen=True, slots=True)
class Plan:
    """The predicted resources of a run on a machine. `speeds` also has the source of the times."""

    config: Configs
    machine: Machine
    demand: Demand
    workload: Workload
    places: tuple[Place, ...]
    times: Times
    speeds: Speeds

    @property
    def cannot_fit(self) -> bool:
        """Return True if the peak bytes in use exceed the capacity of a device."""
        return any(place.least > place.capacity for place in self.places)

    @property
    def fits(self) -> bool:
        """Return True if the expected memory fits every device."""
        return all(place.expected <= place.capacity for place in self.places)

    @property
    def tightest(self) -> Place:
        """Return the device that is expected to use the largest share of its memory."""
        return max(self.places, key=lambda place: place.expected / place.capacity)

    @property
    def trainer(self) -> ProcessMemory:
        """Return the process that trains, whose memory is logged as `memory/peak_gb`."""
        return next(one for place in self.places for one in place.processes if one.name in TRAINERS)

    @property
    def peak_gb(self) -> float:
        """Return the expected `memory/peak_gb`: the tensors on a GPU, or the whole process on a CPU."""
        trainer = self.trainer
        return (trainer.peak if trainer.device == "cpu" else trainer.tensors) / 1e9


@dataclass(frozen=True, slots=True)
class Planner:
    """The planner of a run, from the run's settings, the model's shape, and the rollouts of a step. `base` is the
    number of bytes of a process with PyTorch and transformers. Planning loads and downloads nothing."""

    config: Configs
    shape: Shape
    workload: Workload
    base: float

    def on(self, machine: Machine, speeds: Speeds | None = None) -> Plan:
        """Return the plan of the run on a machine, for which each `auto` in the settings is resolved. Without `speeds`,
        estimate them."""
        config = self.config
        if isinstance(config, RLConfig):
            config = place(config, lambda text: None, num_gpus=machine.num_gpus)
        micro = config.trainer.micro_batch_tokens if isinstance(config, RLConfig) else config.micro_batch_tokens

        def processes(demand: Demand) -> dict[str, list[ProcessMemory]]:
            by_device: dict[str, list[ProcessMemory]] = {}
            for one in processes_of(config, demand, self.base):
                by_device.setdefault(one.device, []).append(one)
            return by_device

        def place_on(device: str, found: Sequence[ProcessMemory], worst: Sequence[ProcessMemory]) -> Place:
            is_cpu = device == "cpu"
            capacity = machine.memory * (1 - KEPT_FREE) if is_cpu else machine.device_at(device).memory
            # Each process on a GPU has its own CUDA context, which `ProcessMemory.base` includes.
            least, expected = sum(one.least for one in found), sum(one.peak for one in found)
            most = max(expected, sum(one.peak for one in worst))
            return Place(device, tuple(found), least, expected, most, capacity)

        demand = demand_of(config, self.shape, self.workload.rows(micro), machine)
        worst = processes(demand_of(config, self.shape, worst_rows(config), machine))
        places = tuple(place_on(device, found, worst[device]) for device, found in processes(demand).items())
        known = speeds or rough_speeds(demand, machine.device, self.workload)
        times = times_of(config, demand, self.workload, known)
        return Plan(config, machine, demand, self.workload, places, times, known)


def make_planner(config: Configs, base: float) -> Planner:
    """Return the planner of a run. Raises UserError for a model without an accessible config."""
    shape = read_shape(config.model.name, config.model.lora)
    return Planner(config, shape, expect_workload(config), base)


def what_is_left(config: RLConfig) -> RLConfig:
    """Return the settings with `max_steps` reduced to the remaining steps of a resumed run."""
    try:
        progress = read_progress(Path(config.output_dir)) if config.resume else None
    except UserError:  # the checkpoint is damaged; the resumed run will not use it
        progress = None
    if progress is None:
        return config
    warmup = config.warmup.model_copy(update={"max_steps": 0})
    return config.model_copy(update={"max_steps": max(0, config.max_steps - progress.step), "warmup": warmup})


def compute_of(config: Configs, machine: Machine) -> Compute:
    """Return the number format and device of a run on a machine. A dtype of `auto` selects the machine's faster
    dtype."""
    device, dtype = machine.device, config.model.dtype
    on_cpu = device.kind == "cpu" or config.model.device == "cpu"
    is_half = device.has_bfloat16 if dtype == "auto" else dtype == "bfloat16"
    like = torch.empty(0, dtype=torch.bfloat16 if is_half else torch.float32)
    here = on_cpu and ops.available(like)
    return Compute(HALF if is_half else FLOAT, "cpu" if on_cpu else "cuda", here, here and ops.has_tiles(like))


def training_device(config: Configs, compute: Compute) -> str:
    """Return the device that a placed run trains on, such as `cpu` or `cuda:1`. With several ranks, return the first
    device."""
    if compute.kind == "cpu":
        return "cpu"
    if isinstance(config, RLConfig) and config.trainer_gpu_ids:
        return f"cuda:{config.trainer_gpu_ids[0]}"
    return config.model.device if config.model.device.startswith("cuda:") else "cuda:0"


def demand_of(config: Configs, shape: Shape, rows: Rows, machine: Machine) -> Demand:
    """Return the demand of a run on a machine. `rows` are the sizes of each step's packs."""
    compute = compute_of(config, machine)
    if isinstance(config, SFTConfig):
        return Demand(config, shape, compute, rows)
    teacher, references, scored = config.teacher, dict[str, Shape](), 0
    named = teacher.name if isinstance(teacher, ModelTeacherConfig) else ""
    is_reference = isinstance(teacher, ModelTeacherConfig) and not named
    if config.trainer.loss.resolve(config.has_teacher).kl_beta or is_reference:
        references["reference: the weights that RL begins with"] = shape
    if named:
        references[f"teacher {named}"] = read_shape(named)
    if isinstance(teacher, PolicyTeacherConfig | ModelTeacherConfig):
        scored = max(config.trainer.micro_batch_tokens, teacher.seq_len)
    on_gpu = compute.kind == "cuda"
    device_bytes = machine.device_at(training_device(config, compute)).memory if on_gpu else 0.0
    return Demand(config, shape, compute, rows, references, scored, device_bytes)


def processes_of(config: Configs, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the processes of a placed run (`launch/placement.py`). `base` is the bytes of Python, PyTorch and
    transformers in each process."""
    device, steps = training_device(config, demand.compute), (config.max_steps, demand.hole)
    trained = [*demand.weight_parts(), *demand.training_parts()]
    if isinstance(config, SFTConfig):
        return [process("sft", device, trained, base, steps)]
    if config.deployment.are_apart:
        return [
            *_trainers(config, demand, base),
            *_samplers(config, demand, base),
            *_orchestrator(config, demand, base),
        ]
    others, teacher_device = demand.reference_parts(), _teacher_device(config, device)
    parts = [*trained, *demand.sampling_parts(), *([] if teacher_device != device else others), *_environments(config)]
    found = [process("one process", device, parts, base, steps)]
    if teacher_device != device and others:
        found.append(process("teacher", teacher_device, others, 0.0))
    return found if "cpu" in (device, teacher_device) else [*found, process("host", "cpu", (), base)]


def _environments(config: RLConfig) -> list[Part]:
    known = {env.id.replace("_", "-") for env in config.orchestrator.env} & ENVIRONMENTS.keys()
    return [Part(f"environment {name}", ENVIRONMENTS[name]) for name in sorted(known)]


def _trainers(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    ids = config.trainer_gpu_ids
    num = len(ids) or config.deployment.num_trainers
    others = [] if isinstance(config.teacher, ModelTeacherConfig) else demand.reference_parts()
    shared = [part.divided(num) if part.phase == "always" else part for part in others]
    parts = [*(part.divided(num) for part in demand.weight_parts()), *demand.training_parts(num), *shared]
    names = ["trainer"] if num == 1 else [f"trainer, rank {rank}" for rank in range(num)]
    steps = config.max_steps, demand.hole / num
    ranks = [process(name, device, parts, base, steps) for name, device in zip(names, _devices(ids, num), strict=True)]
    return ranks if not ids else [*ranks, process("trainer, host", "cpu", (), num * base)]


def _samplers(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    inference, ids, many = config.inference, config.inference_gpu_ids, config.deployment.num_samplers
    if inference.base_url:
        return []
    is_vllm = inference.backend == "vllm"
    num = max(1, len(ids) // many) if is_vllm else 1  # vLLM divides weights and cache among its GPUs
    shared = [Part("weights", demand.weights), *demand.sampling_parts(alone=True)]
    parts = [part.divided(num) for part in shared] + [Part("vLLM's own", VLLM_BASE)] * is_vllm
    # The base matrices that adapters are merged into (`slimrl_serve/weights.py`).
    kept = Part("matrices under the adapter", 0 if is_vllm else demand.adapted)
    name, here = "vLLM" if is_vllm else "sampler", parts if ids else [*parts, kept]
    found = [process(name, device, here, base) for device in _devices(ids, many)]
    return found if not ids else [*found, process("sampler, host", "cpu", [kept.divided(1 / many)], many * base)]


def _devices(ids: Sequence[int], num: int) -> list[str]:
    return [f"cuda:{gpu}" for gpu in ids] or ["cpu"] * num


def _orchestrator(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the orchestrator's process, which plays episodes. If there is a frozen teacher, also return the teacher's
    memory."""
    host = process("orchestrator", "cpu", _environments(config), base)
    if not isinstance(config.teacher, ModelTeacherConfig):
        return [host]
    device = _teacher_device(config, "cpu" if demand.compute.kind == "cpu" else "cuda:0")
    if device == "cpu":
        return [process("orchestrator with the teacher", "cpu", demand.reference_parts(), base)]
    return [host, process("teacher", device, demand.reference_parts(), base)]


def _teacher_device(config: RLConfig, default: str) -> str:
    has_own = isinstance(config.teacher, ModelTeacherConfig) and config.teacher_gpu_ids
    return f"cuda:{config.teacher_gpu_ids[0]}" if has_own else default
