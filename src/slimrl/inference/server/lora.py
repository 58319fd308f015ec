"""A LoRA adapter in PEFT's format, merged into the weights of a model that runs, and taken out again.

Each adapted matrix becomes W + scale B A, added in float32 and rounded to the model's dtype; its old value is kept
beside it. Knows nothing of HTTP or engines. Raises UserError, before anything is changed, for what cannot be merged.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.inference.server.weights import read_tensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = re.compile(r"base_model\.model\.(?P<layer>.+)\.lora_(?P<part>[AB])(\.default)?\.weight")
# What PEFT's configuration may ask for and merging cannot give, with the value that asks for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "fan_in_fan_out": (False, None),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "use_qalora": (False, None),
    "arrow_config": (None,),
    "alora_invocation_tokens": (None, []),
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """The pair (A, B) of every adapted weight, by the weight's name, and the factor of their product."""

    scale: float
    pairs: dict[str, tuple[Tensor, Tensor]]


def read_adapter(directory: Path, module: nn.Module) -> Adapter:
    """Read an adapter and check that it fits the module."""
    config = _read_config(directory)
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1 or not isinstance(alpha, (int, float)):
        raise UserError(f"{directory / CONFIG} has r = {rank} and lora_alpha = {alpha}; both must be positive numbers.")
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    parameters = dict(module.named_parameters())
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in read_tensors(directory / WEIGHTS).items():
        match = NAME.fullmatch(name)
        weight = f"{match['layer']}.weight" if match else ""
        if match is None or weight not in parameters:
            raise UserError(f"{directory / WEIGHTS} has the tensor {name}, which adapts nothing of the served model.")
        parts.setdefault(weight, {})[match["part"]] = tensor
    if not parts:
        raise UserError(f"{directory / WEIGHTS} adapts nothing.")
    pairs = {weight: _pair(weight, found, parameters[weight], rank) for weight, found in parts.items()}
    return Adapter(scale, pairs)


@torch.no_grad()
def merge(adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
    """Add the adapter to the module's weights; returns what they were."""
    parameters = dict(module.named_parameters())
    kept = {}
    for name, (A, B) in adapter.pairs.items():
        weight = parameters[name]
        kept[name] = weight.detach().clone()
        product = B.to(weight.device).float() @ A.to(weight.device).float()
        weight.copy_(weight.float() + adapter.scale * product)
    return kept


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise UserError(f'{path} does not describe a LoRA adapter: its peft_type is not "LORA".')
    for key, neutral in UNSUPPORTED.items():
        if config.get(key) not in neutral:
            raise UserError(f"{path} has {key} = {config[key]}, which cannot be merged. Train the adapter without it.")
    return config


def _pair(name: str, found: dict[str, Tensor], weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    if set(found) != {"A", "B"}:
        raise UserError(f"The adapter of {name} has only one of its two matrices.")
    A, B = found["A"], found["B"]
    rows, columns = weight.shape
    if tuple(A.shape) != (rank, columns) or tuple(B.shape) != (rows, rank):
        raise UserError(
            f"The adapter of {name} has matrices of {list(B.shape)} and {list(A.shape)}; a weight of "
            f"{rows} x {columns} and rank {rank} need {[rows, rank]} and {[rank, columns]}."
        )
    return A, B
