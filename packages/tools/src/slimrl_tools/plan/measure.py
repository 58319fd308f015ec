"""Times a decoding step, a prefill and a training pack with random weights of the real shape, in a few seconds.

The code is that of a run: the engine, the training step, the optimizer. A model that is too large to be held for this
is measured with two smaller numbers of layers, and the times go on in a straight line. Results are kept in the cache,
so that `rl` can foretell times without measuring again.
"""

import hashlib
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.config.run import RLConfig, SFTConfig
from slimrl.config.train import OptimConfig, TrainerConfig
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
from slimrl_tools.plan import sizes
from slimrl_tools.plan.memory import Demand
from slimrl_tools.plan.processes import training_device
from slimrl_tools.plan.shape import build_module, read_model_config
from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row, Workload, row_of, sample_of

BUDGET_S = 1.0  # for the repetitions of one measurement
FEWEST, MOST = 3, 12  # repetitions of a decoding step
MOST_PACK = 1536  # tokens of the measured pack: enough for matrix products to reach their speed
SEEN = 96  # tokens that one sees on average: from here on the time of attention is measured
PIECE = 48
SHARE = 0.5  # of the memory: a larger model is measured with fewer layers
LAYERS = (2, 4)


def measure(config: RLConfig | SFTConfig, demand: Demand, workload: Workload, memory: float) -> Speeds:
    """The speeds of this machine for a run, of which `memory` bytes may be used to measure."""
    if (kept := recall_speeds(config, demand, workload)) is not None:
        return kept
    keep_freed_memory()
    model, layers = read_model_config(config.model.name), demand.shape.layers
    if _bytes_to_measure(demand) <= SHARE * memory or layers <= LAYERS[1]:
        found = _speeds(config, model, demand, workload)
    else:
        few, more = (_speeds(config, _with_layers(model, num), demand, workload) for num in LAYERS)
        found = _extrapolate(few, more, layers)
    _keep(_key(config, demand, workload), found)
    return found


def recall_speeds(config: RLConfig | SFTConfig, demand: Demand, workload: Workload) -> Speeds | None:
    """What was measured before for the same model and settings, on this machine; None if nothing was."""
    path = _path(_key(config, demand, workload))
    try:
        return Speeds(**json.loads(path.read_text(encoding="utf-8"))["speeds"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _with_layers(config: Any, num_layers: int) -> Any:
    """The config of a model with the first layers alone."""
    changed = type(config)(**config.to_dict())
    text = changed.get_text_config()
    text.num_hidden_layers = num_layers
    if types := vars(text).get("layer_types"):
        text.layer_types = types[:num_layers]
    return changed


def _speeds(config: RLConfig | SFTConfig, model: Any, demand: Demand, workload: Workload) -> Speeds:
    """The speeds of a model of this config."""
    device = torch.device(training_device(config, demand.compute))
    dtype = torch.bfloat16 if demand.compute.bytes == sizes.HALF else torch.float32
    module = _random_module(model, dtype, device, config.model.lora)
    vocab = module.get_input_embeddings().num_embeddings  # type: ignore[operator]
    found = {"decode_step": 0.0, "decode_row": 0.0, "prefill": 0.0, "copy": 0.0}
    if isinstance(config, RLConfig):
        inference, slots = config.inference, min(config.inference.max_slots, round(workload.num))
        engine = Engine(module, frozenset(), slots, config.seq_len, 0, inference.quantization)
        found = _sampling_speeds(engine, workload, slots, vocab)
        engine.offload()
        trainer, optim = config.trainer, config.trainer.optim
    else:
        trainer = TrainerConfig(
            micro_batch_tokens=config.micro_batch_tokens, activation_checkpointing=config.activation_checkpointing
        )
        optim = config.optim
    samples = _few_samples(workload, vocab)
    return Speeds(**found, **_training_speeds(module, trainer, optim, samples, config.seq_len), source="measured here")


def _random_module(config: Any, dtype: torch.dtype, device: torch.device, lora: LoraConfig) -> nn.Module:
    check_attention(config)
    with device, torch.random.fork_rng(devices=[]):
        module: nn.Module = build_module(config, dtype)
    if lora.rank > 0:
        adapt(module, lora, "")
        if can_fuse(module):
            keep_merged(module)
    return module


def _sampling_speeds(engine: Engine, workload: Workload, rows: int, vocab: int) -> dict[str, float]:
    """Seconds of a prefilled token; of a decoding step with many sequences and with a quarter of them, from which the
    share of a step and that of a sequence follow; and of making the engine ready again after it was offloaded."""
    prompt = max(2, min(engine.capacity - 2 * MOST - 2, int(workload.mean_length / 2)))
    params = SamplingParams(max_tokens=max(1, engine.capacity - prompt))

    def submit(first: int) -> Any:
        # Prompts that share nothing: each token is computed.
        return engine.submit([(first + place) % vocab for place in range(prompt)], params, lambda sampled: False)

    requests = [submit(7 * number) for number in range(min(rows, 2))]
    engine.step()  # makes the copies of the weights, and compiles what is compiled
    before, began = engine.counters.prefilled, time.perf_counter()
    requests += [submit(100 + 7 * number) for number in range(rows - len(requests))]
    engine.step()
    seconds, num = time.perf_counter() - began, engine.counters.prefilled - before
    many = _median_s(engine.step)
    prefill = max(0.0, seconds - many) / num if num else 0.0
    few_rows = max(1, rows // 4)
    for request in requests[few_rows:]:
        engine.cancel(request)
    few = _median_s(engine.step) if few_rows < rows else many
    for request in requests[:few_rows]:
        engine.cancel(request)
    each = max(0.0, (many - few) / (rows - few_rows)) if few_rows < rows else 0.0
    engine.offload()
    began, request = time.perf_counter(), submit(0)
    engine.step()
    copy = max(0.0, time.perf_counter() - began - few - prompt * prefill)
    engine.cancel(request)
    return {"decode_step": max(0.0, many - each * rows), "decode_row": each, "prefill": prefill, "copy": copy}


def _training_speeds(
    module: nn.Module, config: TrainerConfig, optim: OptimConfig, samples: Sequence[Sample], seq_len: int
) -> dict[str, float]:
    """Seconds of a training row's parts and of an update, by a step on some samples, one on a few tokens, and, where
    tokens see many others, one on short pieces of the same samples."""
    step = TrainStep(module, MasterAdamW(module, optim), config, seq_len)
    device = next(module.parameters()).device
    head = _head_share(module)

    def run(batch: Sequence[Sample]) -> float:
        began = time.perf_counter()
        step(Batch(tuple(batch), 1.0), lr_factor=1.0, version=0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    def fastest(batch: Sequence[Sample]) -> tuple[Row, float]:
        run(batch)  # compiles the products of these sizes, and allocates
        seconds = run(batch)
        return row_of(batch), seconds if seconds > BUDGET_S else min(seconds, run(batch))

    row, seconds = fastest(samples)
    few, update = fastest([short_sample(samples[0])])
    attend = 0.0
    each = max(0.0, seconds - update) / max(1.0, _work(row, head) - _work(few, head))
    if row.pairs > SEEN * row.tokens:
        apart, seconds_apart = fastest(pieces_of(samples))
        # Two rows of about the same work, of which one has many more pairs.
        each, attend = _solve((apart, row), (seconds_apart - update, seconds - update), head)
    return {
        "train": each, "head": each * head, "attend": attend, "update": max(0.0, update - each * _work(few, head)),
    }  # fmt: skip


def _head_share(module: nn.Module) -> float:
    """The weights of the head for each weight of the layers."""
    head: Tensor = module.get_output_embeddings().weight  # type: ignore[operator]
    embeddings: Tensor = module.get_input_embeddings().weight  # type: ignore[operator]
    outside = {id(head), id(embeddings)}
    return head.numel() / sum(weight.numel() for weight in module.parameters() if id(weight) not in outside)


def _work(row: Row, head: float) -> float:
    """The products of a row with the layers and the head, in tokens that only the layers see."""
    return row.tokens + head * row.trained


def _solve(rows: tuple[Row, Row], seconds: tuple[float, float], head: float) -> tuple[float, float]:
    """The seconds of a unit of work and of a pair by which two rows take so many seconds."""
    (few, many), (short, long) = rows, seconds
    determinant = _work(few, head) * many.pairs - _work(many, head) * few.pairs
    attend = max(0.0, (_work(few, head) * long - _work(many, head) * short) / determinant)
    return max(0.0, (long - attend * many.pairs) / _work(many, head)), attend


def pieces_of(samples: Sequence[Sample]) -> list[Sample]:
    """As many tokens as a row of samples has, as many of them trained, in short pieces that share nothing."""
    row, rng = row_of(samples), random.Random(0)
    vocab = 1 + max(max(sample.token_ids_T) for sample in samples)
    share = row.trained / row.tokens
    mask = [False, *(int(place * share) > int((place - 1) * share) for place in range(1, PIECE))]
    mask[-1] = True  # a piece of which nothing is trained is no sample
    return [sample_of([rng.randrange(vocab) for _ in mask], mask) for _ in range(math.ceil(row.tokens / PIECE))]


def short_sample(sample: Sample) -> Sample:
    """The beginning of a sample, up to its first trained token."""
    end = min(len(sample.token_ids_T), sample.loss_mask_T.index(True) + 2, 16)
    token_ids, mask = sample.token_ids_T[:end], (*(False,) * (end - 1), True)
    return Sample(token_ids, mask, (-10.0,) * end, (1.0,) * end, version=sample.version)


def _few_samples(workload: Workload, vocab: int) -> list[Sample]:
    """Samples whose row is at most 1,536 tokens, or one, with token ids that the model knows."""
    chosen = list[Sample]()
    for sample in workload.samples:
        known = replace(sample, token_ids_T=tuple(token % vocab for token in sample.token_ids_T))
        if chosen and row_of((*chosen, known)).tokens > MOST_PACK:
            break
        chosen.append(known)
    return chosen


def _median_s(work: Callable[[], object]) -> float:
    found, began = list[float](), time.perf_counter()
    while len(found) < FEWEST or (len(found) < MOST and time.perf_counter() - began < BUDGET_S):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def _bytes_to_measure(demand: Demand) -> float:
    low, moments = sizes.optimizer(demand.compute, demand.num_trained, demand.is_adapter)
    return 3 * sizes.weights(demand.shape, demand.compute) + low + moments + sizes.FLOAT * demand.num_trained


def _extrapolate(few: Speeds, more: Speeds, layers: int) -> Speeds:
    """The speeds with so many layers, where each takes a straight line through those of 2 and of 4. Where noise turns
    the line down, more layers take what 4 took."""
    one, two = asdict(few), asdict(more)
    steps = (layers - LAYERS[0]) / (LAYERS[1] - LAYERS[0])
    numbers = {name: max(two[name], one[name] + (two[name] - one[name]) * steps) for name in one if name != "source"}
    return Speeds(**numbers, source=f"measured here with {LAYERS[0]} and {LAYERS[1]} of {layers} layers")


def _key(config: RLConfig | SFTConfig, demand: Demand, workload: Workload) -> str:
    """A digest of what the speeds depend on."""
    shape = replace(demand.shape, name="", saved=0)
    processor = _processor(training_device(config, demand.compute))
    around = [torch.__version__, torch.get_num_threads(), processor, config.command, config.seq_len]
    measured = [field.name for field in fields(Speeds)]
    about = [measured, demand.num_slots, demand.quantized, demand.recompute]
    about += [round(workload.num), round(math.log2(workload.mean_length))]
    parts = [asdict(shape), asdict(demand.compute), config.model.lora.model_dump(), around, about]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _processor(device: str) -> str:
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    return f"{torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()}"


def _path(key: str) -> Any:
    return cache_root() / "plan" / f"{key}.json"


def _keep(key: str, speeds: Speeds) -> None:
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [json.dumps({"speeds": asdict(speeds)}, indent=1).encode()])
