"""Time a decoding step, a prefill and a training pack with random weights of the real shape, in a few seconds.

The code is a run's own: the engine, the training step, the optimizer. A model that is too large is measured with two
smaller numbers of layers, and its times are extrapolated in a straight line. Most speeds are slopes between two
measurements, and noise can make a slope negative. Such a speed is measured again with more work, and estimated if that
does not help. Results are stored in the cache for `rl`.
"""

import hashlib
import json
import math
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slimrl.config.model import LoraConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.config.train import TrainerConfig
from slimrl.inference.engine import Engine
from slimrl.io.cache import cache_root
from slimrl.io.files import replace_file
from slimrl.models.allocator import keep_freed_memory
from slimrl.models.check import check_attention
from slimrl.models.forward.fused import can_fuse
from slimrl.models.lora import adapt, keep_merged
from slimrl.trainer.optim import MasterAdamW
from slimrl.trainer.step import TrainStep
from slimrl.transport.base import Batch
from slimrl.types import Sample, SamplingParams
from slimrl_tools.plan.demand import FLOAT, HALF, Demand
from slimrl_tools.plan.processes import training_device
from slimrl_tools.plan.shape import build_module, read_model_config
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row, Workload, row_of, sample_of

Seconds = dict[str, float]  # by the names of `Speeds`, without unmeasured ones
WORK = 1, 3, 9  # times the usual work, until every speed is above 0
BUDGET_S = 1.0  # for the repetitions of one measurement
FEWEST, MOST = 3, 12  # repetitions of a decoding step
MOST_PACK = 1536  # tokens of the measured pack: enough for matrix products to reach their speed
SEEN = 96  # mean tokens that a token attends to; the time of attention is measured above this
PIECE = 48
SHARE = 0.5  # of the memory: a larger model is measured with fewer layers
LAYERS = (2, 4)


def measure(config: RLConfig | SFTConfig, demand: Demand, workload: Workload, memory: float, rough: Speeds) -> Speeds:
    """Return the speeds of this machine for a run. The measurement may use at most `memory` bytes; the speeds of
    `rough` replace those that noise hides."""
    if (kept := recall_speeds(config, demand, workload)) is not None:
        return kept
    keep_freed_memory()
    layers = demand.shape.layers
    is_whole = _bytes_to_measure(demand) <= SHARE * memory or layers <= LAYERS[1]
    for work in WORK:
        found = [_measure(config, num, demand, workload, work) for num in ((layers,) if is_whole else LAYERS)]
        seconds = found[0] if is_whole else _extrapolate(found, layers)
        # Most forwards copy nothing before they sample.
        hidden = [name for name, value in seconds.items() if value <= 0 and name != "copy"]
        if not hidden:
            break
    seconds |= {name: asdict(rough)[name] for name in hidden}
    source = "measured here" + ("" if is_whole else f" with {LAYERS[0]} and {LAYERS[1]} of {layers} layers")
    estimated = f", but for {', '.join(hidden)}, which noise hid" if hidden else ""
    speeds = Speeds(**seconds, head=seconds["train"] * _head_share(demand), source=source + estimated)
    _keep(_path(config, demand, workload), speeds)
    return speeds


def recall_speeds(config: RLConfig | SFTConfig, demand: Demand, workload: Workload) -> Speeds | None:
    """Return earlier measurements for the same model and settings on this machine; None if there are none."""
    try:
        return Speeds(**json.loads(_path(config, demand, workload).read_text(encoding="utf-8"))["speeds"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _measure(config: RLConfig | SFTConfig, layers: int, demand: Demand, workload: Workload, work: int) -> Seconds:
    """Measure a model with the first `layers` layers. A speed hidden by noise is 0 or less."""
    device = torch.device(training_device(config, demand.compute))
    dtype = torch.bfloat16 if demand.compute.bytes == HALF else torch.float32
    module = _random_module(
        _with_layers(read_model_config(config.model.name), layers), dtype, device, config.model.lora
    )
    vocab = module.get_input_embeddings().num_embeddings  # type: ignore[operator]
    found: Seconds = {}
    if isinstance(config, RLConfig):
        inference, slots = config.inference, min(config.inference.max_slots, round(workload.num))
        engine = Engine(module, frozenset(), slots, config.seq_len, 0, inference.quantization)
        found = _sampling_speeds(engine, workload, slots, vocab, work)
        engine.offload()
        trainer, optim = config.trainer, config.trainer.optim
    else:
        trainer = TrainerConfig(
            micro_batch_tokens=config.micro_batch_tokens, activation_checkpointing=config.activation_checkpointing
        )
        optim = config.optim
    step = TrainStep(module, MasterAdamW(module, optim), trainer, config.seq_len)
    return found | _training_speeds(step, _few_samples(workload, vocab, work), _head_share(demand), device, work)


def _with_layers(config: Any, num_layers: int) -> Any:
    """Return a copy of a model's config with only the first `num_layers` layers."""
    changed = type(config)(**config.to_dict())
    text = changed.get_text_config()
    text.num_hidden_layers = num_layers
    if types := vars(text).get("layer_types"):
        text.layer_types = types[:num_layers]
    return changed


def _random_module(config: Any, dtype: torch.dtype, device: torch.device, lora: LoraConfig) -> nn.Module:
    check_attention(config)
    with device, torch.random.fork_rng(devices=[]):
        module: nn.Module = build_module(config, dtype)
    if lora.rank > 0:
        adapt(module, lora, "")
        if can_fuse(module):
            keep_merged(module)
    return module


def _sampling_speeds(engine: Engine, workload: Workload, rows: int, vocab: int, work: int) -> Seconds:
    """Measure a prefilled token, a decoding step, and the engine's time to get ready again after it was offloaded.
    Time decoding with many sequences and with a quarter of them, to separate the times per step and per sequence."""
    most = max(1, min(MOST * work, engine.capacity // 2 - 2))
    prompt = max(2, min(engine.capacity - 2 * most - 2, int(work * workload.mean_length / 2)))
    params = SamplingParams(max_tokens=engine.capacity - prompt)

    def submit(first: int) -> Any:
        # Prompts without a common prefix: each token is computed.
        return engine.submit([(first + place) % vocab for place in range(prompt)], params, lambda sampled: False)

    def timed_step() -> float:
        began = time.perf_counter()
        engine.step()
        return time.perf_counter() - began

    def median_step(budget_s: float = BUDGET_S * work) -> float:
        found, began = [timed_step()], time.perf_counter()
        while len(found) < most and (len(found) < FEWEST or time.perf_counter() - began < budget_s):
            found.append(timed_step())
        return statistics.median(found)

    warm = submit(0)
    engine.step()  # makes the copies of the weights, and compiles
    engine.cancel(warm)
    before = engine.counters.prefilled
    requests = [submit(100 + 7 * number) for number in range(rows)]
    seconds, few_rows = timed_step(), max(1, rows // 4)
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
    copy = timed_step() - few - prompt * found["prefill"]
    engine.cancel(request)
    return found | {"copy": max(0.0, copy)}


def _training_speeds(
    step: TrainStep, samples: Sequence[Sample], head: float, device: torch.device, work: int
) -> Seconds:
    """Measure the parts of a training row and an update. Time a step on some samples, one on a few tokens, and, where
    tokens attend to many others, one on short pieces of the samples. `head` is the head's share (`_head_share`)."""

    def run(batch: Sequence[Sample]) -> float:
        began = time.perf_counter()
        step(Batch(tuple(batch), 1.0), lr_factor=1.0, version=0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def fastest(batch: Sequence[Sample]) -> tuple[Row, float]:
        run(batch)  # compiles the products of these sizes, and allocates
        seconds = run(batch)
        return row_of(batch), min([seconds, *(run(batch) for _ in range(work) if seconds < BUDGET_S)])

    def products(row: Row) -> float:
        return row.tokens + head * row.trained

    row, seconds = fastest(samples)
    few, update = fastest([_beginning(samples[0])])
    each = (seconds - update) / max(1.0, products(row) - products(few))
    found: Seconds = {}
    if row.pairs > SEEN * row.tokens:
        # Two rows of about the same work, but one has many more pairs: two equations.
        apart, seconds_apart = fastest(pieces_of(samples))
        short, long = seconds_apart - update, seconds - update
        determinant = products(apart) * row.pairs - products(row) * apart.pairs
        found["attend"] = (products(apart) * long - products(row) * short) / determinant
        each = (long - max(0.0, found["attend"]) * row.pairs) / products(row)
    return found | {"train": each, "update": update - max(0.0, each) * products(few)}


def _head_share(demand: Demand) -> float:
    """Return the number of the head's weights per weight of the layers."""
    shape = demand.shape
    return shape.head / max(1, shape.weights - (1 if shape.tied else 2) * shape.head)


def pieces_of(samples: Sequence[Sample]) -> list[Sample]:
    """Make short samples without common prefixes, with as many tokens and trained ones as a row of `samples`."""
    row, rng = row_of(samples), random.Random(0)
    vocab = 1 + max(max(sample.token_ids_T) for sample in samples)
    trained = max(1, round(PIECE * row.trained / row.tokens))
    mask = [False] * (PIECE - trained) + [True] * trained
    return [sample_of([rng.randrange(vocab) for _ in mask], mask) for _ in range(math.ceil(row.tokens / PIECE))]


def _beginning(sample: Sample) -> Sample:
    """Return the first tokens of a sample, with only the last one trained."""
    end = min(len(sample.token_ids_T), sample.loss_mask_T.index(True) + 2, 16)
    return sample_of(sample.token_ids_T[:end], [False] * (end - 1) + [True])


def _few_samples(workload: Workload, vocab: int, work: int) -> list[Sample]:
    """Return at least one sample, for a row of up to 1,536 x `work` tokens with ids below `vocab`."""
    chosen = list[Sample]()
    for sample in workload.samples:
        known = replace(sample, token_ids_T=tuple(token % vocab for token in sample.token_ids_T))
        if chosen and row_of((*chosen, known)).tokens > work * MOST_PACK:
            break
        chosen.append(known)
    return chosen


def _bytes_to_measure(demand: Demand) -> float:
    return 3 * demand.weights + demand.masters + demand.moments + FLOAT * demand.num_trained


def _extrapolate(found: Sequence[Seconds], layers: int) -> Seconds:
    """Extrapolate each speed linearly from 2 and 4 layers; 0 if noise made the slope negative."""
    few, more = found
    steps = (layers - LAYERS[0]) / (LAYERS[1] - LAYERS[0])
    slopes = {name: more[name] - few[name] for name in more}
    return {name: few[name] + steps * slope if slope > 0 else 0.0 for name, slope in slopes.items()}


def _path(config: RLConfig | SFTConfig, demand: Demand, workload: Workload) -> Path:
    """Return the cache file; its name is a hash of everything that affects the speeds."""
    device = training_device(config, demand.compute)
    processor = torch.backends.cpu.get_cpu_capability() if device == "cpu" else torch.cuda.get_device_name(device)
    about = [torch.__version__, torch.get_num_threads(), processor, config.command, config.seq_len, WORK]
    about += [demand.num_slots, demand.quantized, demand.recompute, round(workload.num)]
    about += [round(math.log2(workload.mean_length)), config.model.lora.model_dump()]
    about += [asdict(replace(demand.shape, name="", saved=0)), asdict(demand.compute)]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
    return cache_root() / "plan" / f"{digest}.json"


def _keep(path: Path, speeds: Speeds) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [json.dumps({"speeds": asdict(speeds)}, indent=1).encode()])
