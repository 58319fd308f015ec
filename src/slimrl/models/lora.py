"""LoRA (2106.09685): trains low-rank adapters beside a policy's frozen weight matrices.

An adapted matrix W (N, K) acts as W + scale B A, with A (r, K), B (N, r) and scale = alpha / r. PEFT injects the pairs
(A, B) into the module, so names, initial values and files are the same as in PEFT. PEFT's forward runs unless there is
a faster forward. The forwards for CPUs (`fused.py`, `tiled.py`, `training.py` in `models/forward/`) compute with one
merged matrix. The layer keeps this matrix in the weights' dtype, in addition to the pair, so that sampler and trainer
use the same values. Call `refresh_merged` after the pairs have changed. Knows nothing of optimizers, nor of adapters on
disk (`models/adapter.py`).
"""

import copy
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from slimrl.config.model import LoraConfig
from slimrl.errors import UserError, nearest, require
from slimrl.models.rounding import dither, draw_thresholds
from slimrl.models.shards import own_part, own_rows, whole

NAME = "default"  # PEFT's name for a module's only adapter
MERGED = "merged_weight"
GIVEN_NAME, FINGERPRINT = "base_model", "base_fingerprint"  # keys of an adapter's metadata
FINGERPRINT_NUMBERS = 64  # values of each tensor in the fingerprint: at least this number, or all values
PERIOD = 1 << 18  # number of rounding thresholds: 1 MiB, which stays in the CPU's cache
PEFT = ("peft", "lora", "model.lora.rank > 0")  # an extra, and slow to import: only needed to train adapters
_thresholds = functools.cache(draw_thresholds)


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer for the fast forwards: the `weight` (N, K) to compute with, and the trained pair (A, B) if the
    layer has an adapter."""

    weight: Tensor
    bias: Tensor | None
    A: Tensor | None = None
    B: Tensor | None = None
    scale: float = 0.0


def linear_of(layer: Any) -> Linear:
    """Return the matrix, bias and pair of `layer`, which `is_linear` must accept. For an adapted layer, call
    `keep_merged` first."""
    if type(layer) is nn.Linear:
        return Linear(layer.weight, layer.bias)
    return Linear(getattr(layer, MERGED), layer.base_layer.bias, *_pair(layer))


def is_linear(layer: nn.Module | None) -> bool:
    """Return True if a layer is a plain linear layer or a linear layer with an adapter of PEFT."""
    return type(layer) is nn.Linear or (layer is not None and _is_adapted(layer))


def base_of(layer: Any) -> nn.Linear:
    """Return the linear layer inside an adapted layer, or a plain layer itself. `is_linear` must accept `layer`."""
    linear: nn.Linear = layer if type(layer) is nn.Linear else layer.base_layer
    return linear


def adapt(module: nn.Module, config: LoraConfig, base: str) -> None:
    """Freeze the module and inject trainable pairs (A, B). B is 0 at first, so the module computes the same as before.

    `base` is the base model that PEFT loads for the adapter: a directory or an id of the Hub.

    The pairs are float32: they are small, and the optimizer then needs no separate float32 masters. Raises UserError
    for targets that the module lacks, or if PEFT is not installed.
    """
    peft = require(*PEFT)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=target_names(module, config.targets),
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same initial values in every run, so that runs repeat exactly
        peft.inject_adapter_in_model(settings, module)
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def keep_merged(module: nn.Module) -> None:
    """Register the merged matrix as a buffer of every adapted layer, for the forwards that read it."""
    for _, layer in _lora_layers(module):
        layer.register_buffer(MERGED, _merge(layer), persistent=False)


def refresh_merged(module: nn.Module) -> None:
    """Recompute the merged matrices that `keep_merged` registered. Call this after the pairs have changed."""
    for _, layer in _lora_layers(module):
        if hasattr(layer, MERGED):
            merged = getattr(layer, MERGED).detach()
            own_part(merged).copy_(_merge(layer)[own_rows(merged)])


def shard_apart(module: nn.Module) -> list[nn.Module]:
    """Return the frozen base layers of an adapted module. The caller shards them separately, before the decoder layers,
    because fused forwards need not gather them. The merged matrices become parameters, because buffers are not
    sharded."""
    parts = []
    for _, layer in _lora_layers(module):
        parts.append(layer.base_layer)
        if hasattr(layer, MERGED):
            merged = layer.get_buffer(MERGED)
            delattr(layer, MERGED)
            layer.register_parameter(MERGED, nn.Parameter(merged, requires_grad=False))
    return parts


@torch.no_grad()
def merge_weight(weight: Tensor, A: Tensor, B: Tensor, scale: float) -> Tensor:
    """Return W + scale B A, computed in float32 and rounded to the dtype of W; to bfloat16 by `dither`, which leaves an
    unchanged entry of W as it is."""
    A, B = (part.to(weight.device, torch.float32) for part in (A, B))
    exact = torch.addmm(weight.float(), B, A, alpha=scale)
    if weight.dtype != torch.bfloat16:
        return exact.to(weight.dtype)
    merged, thresholds = torch.empty_like(exact, dtype=torch.int16), _thresholds(PERIOD, weight.device)
    for piece, rounded in zip(exact.view(-1).split(PERIOD), merged.view(-1).split(PERIOD), strict=True):
        rounded.copy_(dither(piece, thresholds)[:, 1])
    return merged.view(torch.bfloat16)


def merge_parameters(module: nn.Module, keep: bool = True, device: str | None = None) -> dict[str, Tensor]:
    """Return all parameters by their names in the base model, with the adapter merged. The module stays unchanged.

    The tensors are whole, not shards. They are moved to `device` if it is given, because a GPU that holds one shard may
    lack the memory for all tensors. All processes that share a sharded module must call this; without `keep`, the
    result is empty.
    """
    adapted = {f"{name}.weight": layer for name, layer in _lora_layers(module)}
    found = {}
    for name, parameter in _base_parameters(module):
        tensor = _merge(adapted[name]) if name in adapted else whole(parameter.detach())
        if keep:
            found[name] = tensor if device is None else tensor.to(device)
    return found


def adapter_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the adapter's whole tensors by PEFT's names. All processes that share a sharded module must call this."""
    # The prefix is needed because PEFT's own models hold the module two levels down.
    state = require(*PEFT).get_peft_model_state_dict(module, adapter_name=NAME, save_embedding_layers=False)
    return {f"base_model.model.{name}": whole(tensor).contiguous() for name, tensor in state.items()}


def save_adapter(
    module: nn.Module, tensors: dict[str, Tensor], directory: Path, given_name: str, fingerprint: str = ""
) -> None:
    """Save the adapter in PEFT's format, for `PeftModel.from_pretrained`, in an existing directory. `tensors` are from
    `adapter_tensors`.

    `given_name` is the base model's name as the user gave it; slimrl uses it to find the model on any machine.
    `fingerprint` is the fingerprint of the base model's weights.
    """
    causal: Any = module
    metadata = {"format": "pt", GIVEN_NAME: given_name, FINGERPRINT: fingerprint}
    save_file(tensors, directory / "adapter_model.safetensors", metadata=metadata)
    settings = copy.copy(causal.peft_config[NAME])
    settings.inference_mode = True  # as in PEFT's files
    settings.save_pretrained(directory)


def base_fingerprint(module: nn.Module) -> str:
    """Return a digest of a model's weights without its adapter. It covers the name, shape, dtype and some values of
    each tensor."""
    digest = hashlib.sha256()
    for name, parameter in _base_parameters(module):
        numbers = parameter.detach().reshape(-1)
        some = numbers[:: max(1, len(numbers) // FINGERPRINT_NUMBERS)].contiguous().cpu().view(torch.uint8)
        kind = f"{name} {parameter.dtype} {[*parameter.shape]}"
        digest.update(kind.encode() + some.numpy().tobytes())
    return digest.hexdigest()


def is_adapted(module: nn.Module) -> bool:
    """Return True if a module has an adapter."""
    return next(_lora_layers(module), None) is not None


def target_names(module: nn.Module, targets: Sequence[str]) -> list[str]:
    """Return the last parts of the names of the layers to adapt (such as `q_proj`), for PEFT's `target_modules`. The LM
    head is left out, because it may be tied to the embeddings. Raises UserError for a target that matches no layer."""
    causal: Any = module
    head = causal.get_output_embeddings()
    names = [name for name, layer in module.named_modules() if type(layer) is nn.Linear and layer is not head]
    ends = sorted({name.rpartition(".")[2] for name in names})
    if not ends:
        raise UserError(
            f"LoRA adapts linear layers, and {type(module).__name__} has none besides its head (those of GPT-2 are "
            "Conv1D). Set `model.lora.rank = 0` to train all weights, or take another model."
        )
    if targets == ["all-linear"]:
        return ends
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in names):
            raise UserError(
                f"model.lora.targets names {target}, and no matrix of {type(module).__name__} that can be adapted ends "
                f"so.{nearest(target, ends)}"
            )
    return sorted(set(targets))


def _base_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters of the base model, by their names without an adapter."""
    for name, parameter in module.named_parameters():
        if ".lora_" not in name and not name.endswith(MERGED):
            yield name.replace(".base_layer.", "."), parameter


def _lora_layers(module: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, layer) for name, layer in module.named_modules() if _is_adapted(layer))


def _is_adapted(layer: nn.Module) -> bool:
    """Return True if a layer has an adapter of PEFT. The test uses only the names and types of the layer's children, so
    that PEFT need not be imported."""
    parts = dict(layer.named_children())
    rows = parts.get("lora_A")
    # `isinstance`, because a sharded layer belongs to a subclass.
    return isinstance(parts.get("base_layer"), nn.Linear) and isinstance(rows, nn.ModuleDict) and NAME in rows


def _pair(layer: Any) -> tuple[Tensor, Tensor, float]:
    """Return the matrices A and B of an adapted layer, and the scale of B A."""
    return layer.lora_A[NAME].weight, layer.lora_B[NAME].weight, float(layer.scaling[NAME])


def _merge(layer: Any) -> Tensor:
    A, B, scale = _pair(layer)
    return merge_weight(whole(layer.base_layer.weight.detach()), whole(A.detach()), whole(B.detach()), scale)
