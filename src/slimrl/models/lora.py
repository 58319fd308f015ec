"""LoRA (2106.09685): small matrices that are trained beside a policy's large ones, which stay as they are.

An adapted matrix W (N, K) acts as W + scale B A, with A (r, K), B (N, r) and scale = alpha / r. PEFT puts the pairs
into the module, so that their names, first values and files are PEFT's, and its forward runs wherever there is no
faster one. Those of a CPU (`fused.py`, `tiled.py`, `training.py` in `models/forward/`) compute with one matrix in the
place of the three, kept beside them in the weights' dtype: so sampler and trainer read the same numbers. Whoever
changes the pairs calls `refresh_merged`. Knows nothing of optimizers, nor of adapters on disk (`models/adapter.py`).
"""

import copy
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.errors import UserError, nearest

NAME = "default"  # PEFT's, of the only adapter that a module has
MERGED = "merged_weight"
PERIOD = 1 << 18  # of the thresholds of rounding: 1 MiB, which stays in the processor's cache

# Learning rates and factors beyond which `config_warnings` asks whether they are meant. Usual is 10 times what full
# fine-tuning takes, which is some 3e-6 to 3e-4.
LEARNING_RATES = (3e-5, 3e-3)
FACTORS = (1 / 32, 64.0)
LARGEST_RANK = 128
OF_MLP = ("gate_proj", "up_proj", "down_proj", "gate_up_proj")


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer as the fast forwards see it: the matrix (N, K) to compute with, and what is trained in its place
    if it is adapted."""

    weight: Tensor
    bias: Tensor | None
    A: Tensor | None = None
    B: Tensor | None = None
    scale: float = 0.0


def linear_of(layer: Any) -> Linear:
    """A layer that `is_linear`, after `keep_merged`."""
    if type(layer) is nn.Linear:
        return Linear(layer.weight, layer.bias)
    return Linear(layer.get_buffer(MERGED), layer.base_layer.bias, *_pair(layer))


def is_linear(layer: nn.Module | None) -> bool:
    """Whether it is a plain linear layer, or one that PEFT adapts."""
    return type(layer) is nn.Linear or (layer is not None and _is_adapted(layer))


def base_of(layer: Any) -> nn.Linear:
    """A layer that `is_linear`, without its adapter."""
    linear: nn.Linear = layer if type(layer) is nn.Linear else layer.base_layer
    return linear


def adapt(module: nn.Module, config: LoraConfig, model_name: str) -> None:
    """Freeze the module, and put pairs in it that are to be trained: float32, because the optimizer's exact copies are
    then the pairs themselves, and they are few. At first B is 0, so nothing changes yet.

    Raises UserError for targets that the module lacks, or without PEFT.
    """
    peft = _import_peft()
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=_target_names(module, config.targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=model_name,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same first values in every run, so that runs repeat exactly
        peft.inject_adapter_in_model(settings, module)
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def keep_merged(module: nn.Module) -> None:
    """Have every adapted layer keep the one matrix that stands for all three, for the forwards that read it."""
    for _, layer in _lora_layers(module):
        layer.register_buffer(MERGED, _merge(layer), persistent=False)


def refresh_merged(module: nn.Module) -> None:
    """The pairs have changed: bring what `keep_merged` made up to date."""
    for _, layer in _lora_layers(module):
        if MERGED in dict(layer.named_buffers(recurse=False)):
            layer.get_buffer(MERGED).copy_(_merge(layer))


@torch.no_grad()
def merge_weight(weight: Tensor, A: Tensor, B: Tensor, scale: float) -> Tensor:
    """W + scale B A, added in float32 and rounded to the dtype of W.

    Rounded to the nearest number of bfloat16, nearly all of W would stay as it is until the pair has grown for many
    steps; so each number is rounded at a threshold of its own, as in `trainer/optim.py`, and the change is right on
    average. What needs no rounding, such as W itself, stays.
    """
    A, B = (part.to(weight.device, torch.float32) for part in (A, B))
    exact = torch.addmm(weight.float(), B, A, alpha=scale)
    if weight.dtype != torch.bfloat16:
        return exact.to(weight.dtype)
    thresholds = _thresholds(weight.device)
    for piece in exact.view(torch.int32).view(-1).split(PERIOD):
        piece.add_(thresholds[: len(piece)])
    return exact.view(torch.int16)[..., 1::2].contiguous().view(torch.bfloat16)  # the upper halves


def merge_parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters by the names that they have without adapters, adapted ones merged; the module's own without."""
    merged = {f"{name}.weight": _merge(layer) for name, layer in _lora_layers(module)}
    found = {}
    for name, parameter in module.named_parameters():
        if ".lora_" not in name:
            plain = name.replace(".base_layer.", ".")
            found[plain] = merged.get(plain, parameter.detach())
    return found


def save_adapter(module: nn.Module, directory: Path) -> None:
    """Write the pairs of an adapted module as PEFT does, so that `PeftModel.from_pretrained` reads them."""
    peft = _import_peft()
    causal: Any = module
    state = peft.get_peft_model_state_dict(module, adapter_name=NAME, save_embedding_layers=False)
    directory.mkdir()
    # In a model of PEFT's own, the module is two levels down.
    tensors = {f"base_model.model.{name}": tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = copy.copy(causal.peft_config[NAME])
    settings.inference_mode = True  # as PEFT has it on disk
    settings.save_pretrained(directory)


def is_adapted(module: nn.Module) -> bool:
    """Whether pairs were put in it."""
    return next(_lora_layers(module), None) is not None


def config_warnings(config: LoraConfig, key: str, lr: float) -> list[str]:
    """What is unusual about the settings, in words; `key` is that of the learning rate."""
    if config.rank == 0:
        return []
    found, factor = [], config.alpha / config.rank
    if not LEARNING_RATES[0] <= lr <= LEARNING_RATES[1]:
        found.append(
            f"{key} = {lr:g} is unusual for LoRA: about 10 times the rate of full fine-tuning is best, "
            f"{LEARNING_RATES[0]:g} to {LEARNING_RATES[1]:g} as a rule"
        )
    if not FACTORS[0] <= factor <= FACTORS[1]:
        found.append(
            f"model.lora.alpha / model.lora.rank = {factor:g} is unusual, and the best learning rate moves with it; "
            "alpha 32 goes with every rank"
        )
    if config.rank > LARGEST_RANK:
        found.append(
            f"model.lora.rank = {config.rank} is unusual: RL learns as much with 8 to 32, and far more of them cost "
            "what training all weights costs"
        )
    if config.targets != ["all-linear"] and not any(name.endswith(OF_MLP) for name in config.targets):
        found.append(
            f"model.lora.targets = {config.targets} leaves the MLP as it is, and attention alone learns worse: "
            '["all-linear"] takes both'
        )
    return found


def _import_peft() -> Any:
    try:
        import peft  # an extra, and slow to import: only where adapters are trained
    except ImportError as error:
        raise UserError(f"model.lora.rank > 0 needs the extra [lora]: `uv sync --extra lora` ({error}).") from error
    return peft


def _target_names(module: nn.Module, targets: Sequence[str]) -> list[str]:
    """What PEFT is to look for: the ends of layers' names. The head is left out: it may be tied to the embeddings."""
    causal: Any = module
    head = causal.get_output_embeddings()
    names = [name for name, layer in module.named_modules() if type(layer) is nn.Linear and layer is not head]
    ends = sorted({name.rpartition(".")[2] for name in names})
    if targets == ["all-linear"]:
        return ends
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise UserError(
                f"model.lora.targets names {target}, and no matrix of {type(module).__name__} that can be adapted ends "
                f"so.{nearest(target, ends)}"
            )
    return sorted(set(targets))


def _lora_layers(module: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, layer) for name, layer in module.named_modules() if _is_adapted(layer))


def _is_adapted(layer: nn.Module) -> bool:
    """By its parts, because PEFT is not imported where nothing is adapted."""
    parts = dict(layer.named_children())
    rows = parts.get("lora_A")
    return type(parts.get("base_layer")) is nn.Linear and isinstance(rows, nn.ModuleDict) and NAME in rows


def _pair(layer: Any) -> tuple[Tensor, Tensor, float]:
    """A, B and the factor of their product."""
    return layer.lora_A[NAME].weight, layer.lora_B[NAME].weight, float(layer.scaling[NAME])


def _merge(layer: Any) -> Tensor:
    return merge_weight(layer.base_layer.weight.detach(), *_pair(layer))


@functools.cache
def _thresholds(device: torch.device) -> Tensor:
    """Whole numbers from 0 to 65535, the same in every run: what the 16 bits that bfloat16 lacks are rounded up at."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(1 << 16, (PERIOD,), generator=generator, dtype=torch.int32).to(device)
