"""Reads a LoRA adapter in PEFT's format and merges it into a model's weights, without changing the model.

Knows nothing of training (`models/lora.py`), HTTP or engines. Raises UserError for adapters that cannot be merged.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from slimrl.errors import UserError
from slimrl.io.checksums import check_sums
from slimrl.io.regular_file import read_json
from slimrl.models.device import dtype_name
from slimrl.models.lora import FINGERPRINT, GIVEN_NAME, merge_weight
from slimrl.models.tensor_file import TensorFile, TensorKind

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES = 2**20
FORMATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
MAX_RANK = 2**14
MAX_ALPHA = 1e9  # any larger number is a mistake
PAIR = re.compile(r"base_model\.model\.(?P<layer>.+?)\.lora_(?P<part>[AB])(\.default)?(\.weight)?")
# Settings of PEFT that cannot be merged, because W + scale B A does not express them. `OFF` holds the values that
# disable them.
UNSUPPORTED = (
    *("use_dora", "bias", "lora_bias", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "trainable_token_indices"),
    *("target_parameters", "layer_replication", "use_qalora", "arrow_config", "kasa_config", "monteclora_config"),
    *("use_bdlora", "alora_invocation_tokens"),
)
OFF: tuple[Any, ...] = (None, False, "none", [], {})  # but an empty `..._config` enables its method
# PEFT's initialisations that do not change the base model's weights; all others subtract something from the weights.
PLAIN_INITS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter. `pairs` maps the name of each adapted weight to its matrices (A, B). Their product B A is
    multiplied by `scale`. `base` is the fingerprint of the base model's weights; empty if unknown."""

    scale: float
    pairs: dict[str, tuple[Tensor, Tensor]]
    base: str = ""


def is_adapter(directory: Path) -> bool:
    """Return True if a directory holds an adapter without the weights of a model."""
    return (directory / CONFIG).is_file() and not (directory / "config.json").exists()


def base_model_name(directory: Path) -> str | None:
    """Return the name of an adapter's base model; None if the directory holds no adapter."""
    if not is_adapter(directory):
        return None
    check_sums(directory)
    name: Any = _read_config(directory).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise UserError(f"{directory / CONFIG} does not say which model it adapts: set base_model_name_or_path in it.")
    # slimrl's own adapters store a path here, for PEFT. If this machine has no such path, use the name that the user
    # gave.
    given = "" if Path(name).expanduser().exists() else TensorFile(directory / WEIGHTS).metadata.get(GIVEN_NAME, "")
    return given or name


def read_adapter(directory: Path, module: nn.Module) -> Adapter:
    """Read the adapter in a directory. Raises UserError if the adapter does not fit the module."""
    path = directory / WEIGHTS
    check_sums(directory, [CONFIG, WEIGHTS])
    config = _read_config(directory)
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    are_numbers = type(rank) is int and type(alpha) in (int, float)  # for `isinstance` a boolean is an `int`
    if not are_numbers or not (1 <= rank <= MAX_RANK and 0 < alpha < MAX_ALPHA):
        raise UserError(
            f"{directory / CONFIG} has r = {rank} and lora_alpha = {alpha}; both must be positive, r at most "
            f"{MAX_RANK} and lora_alpha below {MAX_ALPHA:.0e}."
        )
    # rsLoRA (2312.03732) divides by the root of the rank.
    scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
    file = TensorFile(path)
    # A tied weight appears under each of its names.
    known = dict(module.named_parameters(remove_duplicate=False))
    places = {name: _place(path, name, kind, known, rank) for name, kind in file.kinds.items()}
    weights = {weight for weight, _ in places.values()}
    if not weights or sorted(places.values()) != sorted((weight, part) for weight in weights for part in "AB"):
        raise UserError(f"{path} does not have one pair of matrices, lora_A and lora_B, for each adapted layer.")
    parts = {places[name]: tensor for name, tensor in file.read()}
    pairs = {weight: (parts[weight, "A"], parts[weight, "B"]) for weight in weights}
    return Adapter(scale, pairs, file.metadata.get(FINGERPRINT, ""))


@torch.no_grad()
def merge(adapter: Adapter, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the adapted weights by name: each is the weight in `base` plus the adapter's change. `base` stays
    unchanged. Raises UserError if a result is NaN or infinite."""
    merged = {}
    for name, (A, B) in adapter.pairs.items():
        merged[name] = merge_weight(base[name], A, B, adapter.scale)
        if not torch.isfinite(merged[name]).all():
            raise UserError(f"{name} with the adapter merged into it has numbers that are NaN or infinite.")
    return merged


def _read_config(directory: Path) -> dict[str, Any]:
    path = directory / CONFIG
    config = read_json(path, MAX_CONFIG_BYTES)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise UserError(f'{path} does not describe a LoRA adapter: its peft_type is not "LORA".')
    for key in UNSUPPORTED:
        value = config.get(key)
        if value not in OFF or (value == {} and key.endswith("_config")):
            raise UserError(f"{path} has {key} = {value}, which cannot be merged. Train the adapter without it.")
    if config.get("init_lora_weights") not in PLAIN_INITS:
        raise UserError(
            f"{path} has init_lora_weights = {config['init_lora_weights']}, which changed the base model's weights "
            "before training, and the model's are as they were. Save the adapter as a plain one, with PEFT's "
            "path_initial_model_for_weight_conversion."
        )
    return config


def _place(source: Path, name: str, kind: TensorKind, known: Mapping[str, Tensor], rank: int) -> tuple[str, str]:
    """Return the name of the weight that the tensor `name` adapts, and the letter of the matrix: "A" or "B".

    Raises UserError if the tensor is neither A nor B of a weight in `known`, if it does not fit the weight and the
    rank, or if the weight is tied.
    """
    pair = PAIR.fullmatch(name)
    weight = f"{pair['layer']}.weight" if pair else ""
    if not pair or weight not in known:
        raise UserError(
            f"{source} has the tensor {name}, which adapts nothing of the model by a pair (lora_A, lora_B). Merge the "
            "adapter by PEFT's `merge_and_unload`, save that model, and name its directory."
        )
    shape, dtype = kind
    if dtype not in FORMATS:
        raise UserError(
            f"{source} has the tensor {name} of {dtype_name(dtype)}: an adapter that is quantised cannot be merged. "
            "Save it as float32, float16 or bfloat16."
        )
    own = tuple(known[weight].shape)
    if len(own) != 2 or tuple(shape) != ((rank, own[1]) if pair["part"] == "A" else (own[0], rank)):
        raise UserError(
            f"{source} has the tensor {name} of the shape {list(shape)}, which does not fit the weight's {list(own)} "
            f"and the rank {rank}."
        )
    if others := [other for other, tensor in known.items() if tensor is known[weight] and other != weight]:
        raise UserError(
            f"{source} has an adapter on {pair['layer']}, and this model is tied: {others[0]} is the same weight "
            "(tie_word_embeddings), which merging would change too. Train the adapter without "
            f"{pair['layer'].rpartition('.')[2]} among target_modules, or untie the base model first."
        )
    return weight, pair["part"]
