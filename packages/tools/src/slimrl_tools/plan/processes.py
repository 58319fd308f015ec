"""Lists the processes of a placed run, the memory of each, and their devices (`launch/placement.py`)."""

from dataclasses import replace

import torch

from slimrl.config.run import RLConfig, SFTConfig
from slimrl.config.teacher import ModelTeacherConfig, PolicyTeacherConfig
from slimrl.inference.engine import is_kept
from slimrl.models.native import ops
from slimrl_tools.plan.demand import FLOAT, HALF, Compute, Demand
from slimrl_tools.plan.devices import Machine
from slimrl_tools.plan.memory import (
    Part,
    ProcessMemory,
    process,
    reference_parts,
    sampling_parts,
    training_parts,
    weight_parts,
)
from slimrl_tools.plan.shape import Shape, read_shape
from slimrl_tools.plan.workload import Rows

VLLM_BASE = 1_500_000_000  # of vLLM's own process beside weights and cache: its context, graphs and workspaces
# Environments that hold more than a few megabytes in the process that plays them: Chroma, and an embedding model.
ENVIRONMENTS = {"wiki-search": 300_000_000}
Configs = RLConfig | SFTConfig


def compute_of(config: Configs, machine: Machine) -> Compute:
    """Return how a run computes on a machine: in the dtype of the settings, or by default in the faster one there."""
    device = machine.device
    on_cpu = device.kind == "cpu" or config.model.device == "cpu"
    dtype = config.model.dtype
    if dtype == "auto":
        dtype = "bfloat16" if device.has_bfloat16 else "float32"
    like = torch.empty(0, dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    here = on_cpu and ops.available(like)
    return Compute(
        HALF if dtype == "bfloat16" else FLOAT, "cpu" if on_cpu else "cuda", here, here and ops.has_tiles(like)
    )


def training_device(config: Configs, compute: Compute) -> str:
    """Return the device that a placed run trains on, such as `cpu` or `cuda:1`; the first of several."""
    if compute.kind == "cpu":
        return "cpu"
    if isinstance(config, RLConfig) and config.trainer_gpu_ids:
        return f"cuda:{config.trainer_gpu_ids[0]}"
    return config.model.device if config.model.device.startswith("cuda:") else "cuda:0"


def demand_of(config: Configs, shape: Shape, compute: Compute, rows: Rows, machine: Machine) -> Demand:
    """Return the demand of a run with packs like `rows` in each step."""
    lora, seq_len = config.model.lora, config.seq_len
    if isinstance(config, SFTConfig):
        return Demand(shape, compute, lora, rows, seq_len, recompute=config.activation_checkpointing)
    teacher, references = config.teacher, dict[str, Shape]()
    named = teacher.name if isinstance(teacher, ModelTeacherConfig) else ""
    is_reference = isinstance(teacher, ModelTeacherConfig) and not named
    if config.trainer.loss.resolve(config.has_teacher).kl_beta or is_reference:
        references["reference: the weights that RL begins with"] = shape
    if named:
        references[f"teacher {named}"] = read_shape(named)
    scored = 0
    if isinstance(teacher, PolicyTeacherConfig | ModelTeacherConfig):
        scored = max(config.trainer.micro_batch_tokens, teacher.seq_len)
    slots = config.inference.max_slots
    demand = Demand(
        shape,
        compute,
        lora,
        rows,
        seq_len,
        num_slots=slots,
        prefilled=min(rows.tokens, slots * seq_len),
        quantized=config.inference.quantization == "int8",
        recompute=config.trainer.activation_checkpointing,
        references=references,
        scored=scored,
    )
    device_bytes = machine.device_at(training_device(config, compute)).memory if compute.kind == "cuda" else 0
    return replace(demand, keeps_cache=config.async_level > 0 or is_kept(demand.kv_cache, int(device_bytes)))


def processes_of(config: Configs, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the processes of a placed run. `base` counts the bytes of Python, PyTorch and transformers in each."""
    device = training_device(config, demand.compute)
    if isinstance(config, SFTConfig):
        parts = [*weight_parts(demand), *training_parts(demand)]
        return [process("sft", device, parts, base, (config.max_steps, demand.hole))]
    if not config.deployment.are_apart:
        return _in_one(config, demand, device, base)
    return [*_trainers(config, demand, base), *_sampler(config, demand, base), *_orchestrator(config, demand, base)]


def environment_parts(config: RLConfig) -> list[Part]:
    """Return the memory of slimrl's own environments."""
    known = {env.id.replace("_", "-") for env in config.orchestrator.env} & ENVIRONMENTS.keys()
    return [Part(f"environment {name}", ENVIRONMENTS[name]) for name in sorted(known)]


def _in_one(config: RLConfig, demand: Demand, device: str, base: float) -> list[ProcessMemory]:
    teacher_device = _teacher_device(config, device)
    apart = teacher_device != device
    parts = [*weight_parts(demand), *training_parts(demand), *sampling_parts(demand)]
    others = reference_parts(demand)
    parts += environment_parts(config)
    steps = config.max_steps, demand.hole
    found = [process("one process", device, parts if apart else [*parts, *others], base, steps)]
    if apart and others:
        found.append(process("teacher", teacher_device, others, 0.0))
    return found if device == "cpu" or teacher_device == "cpu" else [*found, process("host", "cpu", (), base)]


def _trainers(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the ranks of the trainer, each with its shard (FSDP2)."""
    ids = config.trainer_gpu_ids
    num = len(ids) or config.deployment.num_trainers
    others = [] if isinstance(config.teacher, ModelTeacherConfig) else reference_parts(demand, num)
    parts = [*weight_parts(demand, num), *training_parts(demand, num), *others]
    devices = [f"cuda:{gpu}" for gpu in ids] or ["cpu"] * num
    names = ["trainer"] if num == 1 else [f"trainer, rank {rank}" for rank in range(num)]
    steps = config.max_steps, demand.hole / num
    ranks = [process(*pair, parts, base, steps) for pair in zip(names, devices, strict=True)]
    return ranks if not ids else [*ranks, process("trainer, host", "cpu", (), num * base)]


def _sampler(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the processes that sample; none if an external server samples."""
    inference, ids = config.inference, config.inference_gpu_ids
    if inference.base_url:
        return []
    is_vllm = inference.backend == "vllm"
    many = config.deployment.num_samplers
    num = max(1, len(ids) // many) if is_vllm else 1  # vLLM divides weights and cache among its GPUs
    shared = [Part("weights", demand.weights), *sampling_parts(demand, alone=True)]
    parts = [Part(part.name, part.bytes / num, part.phase) for part in shared]
    parts += [Part("vLLM's own", VLLM_BASE)] if is_vllm else []
    # The base matrices that adapters are merged into (`slimrl_serve/base_weights.py`).
    kept = [] if is_vllm else [Part("matrices under the adapter", demand.adapted)]
    if not ids:
        return [process("vLLM" if is_vllm else "sampler", "cpu", [*parts, *kept], base)] * many
    found = [process("vLLM" if is_vllm else "sampler", f"cuda:{gpu}", parts, base) for gpu in ids]
    host = [Part(part.name, many * part.bytes, part.phase) for part in kept]
    return [*found, process("sampler, host", "cpu", host, many * base)]


def _orchestrator(config: RLConfig, demand: Demand, base: float) -> list[ProcessMemory]:
    """Return the process that plays episodes, and a frozen teacher if there is one."""
    host = process("orchestrator", "cpu", environment_parts(config), base)
    if not isinstance(config.teacher, ModelTeacherConfig):
        return [host]
    device = _teacher_device(config, "cpu" if demand.compute.kind == "cpu" else "cuda:0")
    if device == "cpu":
        return [process("orchestrator with the teacher", "cpu", reference_parts(demand), base)]
    return [host, process("teacher", device, reference_parts(demand), base)]


def _teacher_device(config: RLConfig, default: str) -> str:
    if not isinstance(config.teacher, ModelTeacherConfig):
        return default
    if config.teacher_gpu_ids:
        return f"cuda:{config.teacher_gpu_ids[0]}"
    return default if config.teacher.device == "policy" else config.teacher.device
