"""Describes this machine, and measures the time of a decoding step, a prefill and a training pack with random weights.

The measurements use the code of a real run: the engine, the training step and the optimizer. Most speeds are slopes
between two measurements. If noise hides a slope, an estimate replaces it. The results are stored in the cache, where
`rl` finds them.
"""

import hashlib
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from slimrl.config.rollout import InferenceConfig
from slimrl.config.run import RLConfig
from slimrl.config.train import TrainerConfig
from slimrl.inference.engine import Engine
from slimrl.io.cache import cache_root
from slimrl.io.files import replace_file
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.check import check_attention
from slimrl.models.device import choose_dtype
from slimrl.models.forward.fused import can_fuse
from slimrl.models.lora import adapt, keep_merged
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample, SamplingParams
from slimrl_tools.plan.devices import Device, Machine
from slimrl_tools.plan.memory import HALF
from slimrl_tools.plan.plan import Plan, training_device
from slimrl_tools.plan.shape import build_module, read_model_config
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Workload, row_of, sample_of
from slimrl_tools.system import usable_memory

COPIED = 1 << 26  # bytes copied to measure the memory bandwidth; more than the CPU's caches hold
Seconds = dict[str, float]  # by the field names of `Speeds`; unmeasured speeds are absent
BUDGET_S = 1.0  # seconds for the repetitions of one measurement
FEWEST, MOST = 3, 12  # repetitions of a decoding step
MOST_PACK = 1536  # tokens of the measured pack: enough for matrix products to reach their full speed
SHARE = 0.8  # share of a device's memory: the times of a model that needs more are estimated


def this_machine(device: str = "auto") -> Machine:
    """Return a description of this machine for a run with `model.device` = `device`. If the run uses the CPU, the CPU's
    speeds are measured in a fraction of a second."""
    memory, limit = usable_memory()
    gpus = _gpus()
    if gpus and device != "cpu":
        counts = Counter(gpu.name for gpu in gpus)
        name = f"this machine, {', '.join(f'{num} x {name}' for name, num in counts.items())}"
        machine = Machine(name, gpus[0], len(gpus), memory, limit, gpus)
        return replace(machine, device=machine.device_at(device))
    flops = {name: 1e9 * gflops for name, gflops in choose_dtype(torch.device("cpu")).gflops.items()}
    source = torch.zeros(COPIED // 4)
    target = torch.empty_like(source)
    copy_s = min(_timed(lambda: target.copy_(source)) for _ in range(4))
    cpu = Device("CPU", "cpu", memory, 2 * COPIED / copy_s, flops["bfloat16"], flops["float32"])
    # List the GPUs, too, because a teacher may use a GPU.
    return Machine(f"this machine, {torch.get_num_threads()} cores", cpu, 0, memory, limit, gpus)


def _gpus() -> tuple[Device, ...]:
    """Return the GPUs that PyTorch sees. PyTorch reports neither their bandwidth nor their operations per second, so
    these numbers are placeholders, used where times are not measured."""
    if not (num := torch.cuda.device_count()):
        return ()
    flops = 5e13 if torch.cuda.is_bf16_supported(including_emulation=False) else 1e13
    found = [torch.cuda.get_device_properties(index) for index in range(num)]
    return tuple(Device(one.name, "cuda", one.total_memory, 5e11, flops, 1e13) for one in found)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(plan: Plan) -> Speeds:
    """Return the speeds of this machine for a planned run, from the cache or from a measurement. The plan's estimates
    replace speeds that noise hides, and all speeds of a model that is too large for a measurement on one device."""
    if (kept := recall_speeds(plan)) is not None:
        return kept
    demand = plan.demand
    needed = 3 * demand.weights + 14 * demand.num_trained  # two copies for the engine; masters, moments, gradients
    if needed > SHARE * min(place.capacity for place in plan.places):
        return plan.speeds
    keep_freed_memory()
    seconds, source = _measure(plan), "measured here"
    hidden = [name for name, value in seconds.items() if value <= 0 and name != "copy"]  # `copy` may be 0
    seconds |= {name: asdict(plan.speeds)[name] for name in hidden}
    source += f", but for {', '.join(hidden)}, which noise hid" if hidden else ""
    speeds = Speeds(**seconds, source=source)
    path = _path(plan)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [json.dumps({"speeds": asdict(speeds)}, indent=1).encode()])
    return speeds


def recall_speeds(plan: Plan) -> Speeds | None:
    """Return the stored speeds for the same model and settings on this machine; None without a valid cache file."""
    try:
        return Speeds(**json.loads(_path(plan).read_text(encoding="utf-8"))["speeds"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _path(plan: Plan) -> Path:
    """Return the path of the cache file. Its name is a hash of everything that affects the speeds."""
    config, demand, workload = plan.config, plan.demand, plan.workload
    device = training_device(config, demand.compute)
    processor = torch.backends.cpu.get_cpu_capability() if device == "cpu" else torch.cuda.get_device_name(device)
    about = [torch.__version__, torch.get_num_threads(), processor, config.command, config.seq_len]
    inference = config.inference if isinstance(config, RLConfig) else InferenceConfig()
    about += [inference.max_slots, demand.recompute, round(workload.num)]
    about += [round(math.log2(workload.mean_length)), config.model.lora.model_dump()]
    about += [asdict(replace(demand.shape, name="", saved=0)), asdict(demand.compute)]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    return cache_root() / "plan" / f"{digest}.json"


def _measure(plan: Plan) -> Seconds:
    """Measure the speeds. A speed within the noise is 0 or negative."""
    config, demand, workload = plan.config, plan.demand, plan.workload
    device = torch.device(training_device(config, demand.compute))
    model = read_model_config(config.model.name)
    check_attention(model)
    with device, torch.random.fork_rng(devices=[]):
        module = build_module(model, torch.bfloat16 if demand.compute.bytes == HALF else torch.float32)
    if config.model.lora.rank > 0:
        adapt(module, config.model.lora, "")
        if can_fuse(module):
            keep_merged(module)
    found: Seconds = {}
    vocab = module.get_input_embeddings().num_embeddings
    if isinstance(config, RLConfig):
        trainer, optim = config.trainer, config.trainer.optim
        slots = min(config.inference.max_slots, round(workload.num))
        engine = Engine(module, frozenset(), slots, config.seq_len)
        found = _sampling_speeds(engine, workload, slots, vocab)
        engine.offload()
    else:
        trainer = TrainerConfig(
            micro_batch_tokens=config.micro_batch_tokens, activation_checkpointing=config.activation_checkpointing
        )
        optim = config.optim
    step = TrainStep(module, MasterAdamW(module, optim), trainer, config.seq_len)
    return found | _training_speeds(step, _few_samples(workload, vocab), plan.speeds, device)


def _sampling_speeds(engine: Engine, workload: Workload, rows: int, vocab: int) -> Seconds:
    """Measure the seconds per prefilled token, per decoding step, and for the engine's reload after it was offloaded.
    Decoding is measured with `rows` sequences and with `rows / 4`, to separate the time per step from the time per
    sequence."""
    most = max(1, min(MOST, engine.capacity // 2 - 2))
    prompt = max(2, min(engine.capacity - 2 * most - 2, int(workload.mean_length / 2)))
    params = SamplingParams(max_tokens=engine.capacity - prompt)

    def submit(first: int) -> Any:
        # The prompts have no common prefix, so that each token is computed.
        return engine.submit([(first + place) % vocab for place in range(prompt)], params, lambda sampled: False)

    def median_step() -> float:
        found, began = [_timed(engine.step)], time.perf_counter()
        while len(found) < most and (len(found) < FEWEST or time.perf_counter() - began < BUDGET_S):
            found.append(_timed(engine.step))
        return statistics.median(found)

    warm = submit(0)
    engine.step()  # makes the engine's copies of the weights, and compiles
    engine.cancel(warm)
    before = engine.counters.prefilled
    requests = [submit(100 + 7 * number) for number in range(rows)]
    seconds, few_rows = _timed(engine.step), max(1, rows // 4)
    num, many = engine.counters.prefilled - before, median_step()
    found = {"prefill": (seconds - many) / num, "decode_step": many}
    few = many
    if few_rows < rows:
        for request in requests[few_rows:]:
            engine.cancel(request)
        few = median_step()
        found["decode_row"] = (many - few) / (rows - few_rows)
        found["decode_step"] = many - rows * max(0.0, found["decode_row"])
    for request in requests[:few_rows]:
        engine.cancel(request)
    engine.offload()
    request = submit(0)
    copy = _timed(engine.step) - few - prompt * found["prefill"]
    engine.cancel(request)
    return found | {"copy": max(0.0, copy)}


def _training_speeds(step: TrainStep, samples: Sequence[Sample], rough: Speeds, device: torch.device) -> Seconds:
    """Measure the seconds of a training row and of a weight update. Two training steps are timed: one on `samples`,
    and one on a few tokens. The estimates for a row in `rough` are multiplied by the ratio of measured to estimated
    time."""

    def fastest(batch: Sequence[Sample]) -> tuple[float, float]:
        def run() -> None:
            step(Batch(tuple(batch), 1.0), lr_factor=1.0, version=0)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        run()  # compiles matrix products of these sizes, and allocates memory
        seconds = _timed(run)
        return rough.row_s(row_of(batch)), min(seconds, _timed(run) if seconds < BUDGET_S else seconds)

    first = samples[0]
    end = min(len(first.token_ids_T), first.loss_mask_T.index(True) + 2, 16)
    few, few_s = fastest([sample_of(first.token_ids_T[:end], [False] * (end - 1) + [True])])
    many, many_s = fastest(samples)
    factor = (many_s - few_s) / max(many - few, 0.1 * few)
    row = {"train": factor * rough.train, "head": factor * rough.head, "attend": factor * rough.attend}
    return row | {"update": few_s - max(0.0, factor) * few}


def _few_samples(workload: Workload, vocab: int) -> list[Sample]:
    """Return the first samples that fit a row of `MOST_PACK` tokens, but at least one sample. Token ids are taken
    modulo `vocab`."""
    chosen = list[Sample]()
    for sample in workload.samples:
        known = replace(sample, token_ids_T=tuple(token % vocab for token in sample.token_ids_T))
        if chosen and row_of((*chosen, known)).tokens > MOST_PACK:
            break
        chosen.append(known)
    return chosen
