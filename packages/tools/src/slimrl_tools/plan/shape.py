"""Reads the shape of a model: its numbers of weights and its widths, which determine memory and time.

The source is `config.json` or the header of a `.gguf` file: nothing else is downloaded, converted or loaded.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from slimrl.config.model import LoraConfig
from slimrl.models.adapter import base_model_name
from slimrl.models.forward.attention import ATTENTION, LayerInputs
from slimrl.models.forward.fused import FUSED, LINEARS
from slimrl.models.gguf import gguf_config
from slimrl.models.load import explain_failure
from slimrl.models.lora import target_names
from slimrl.models.names import ModelKind, kind_of, read_packaged_config
from slimrl.models.resolve import find_config

Matrix = tuple[str, int, int]  # the name of a linear layer in the module, its inputs and its outputs
SHORT, LONG = 64, 128  # tokens of two rows: the difference of their saved bytes gives the bytes per token


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a model. Widths are numbers per token and layer: `query` and `key` are summed over all heads.

    `matrices` are its linear layers except the head. `weights` is the number of all weights, with tied weights counted
    once. `active` is the number of weights that a token is multiplied with: all but embeddings that are not tied.
    `saved` is the number of bytes per token that the module's own forward keeps for the backward pass in bfloat16; 0 if
    unknown.
    """

    name: str
    family: str
    layers: int
    hidden: int
    inner: int
    query: int
    key: int
    heads: int
    vocab: int
    weights: int
    active: int
    is_fused: bool
    matrices: tuple[Matrix, ...]
    saved: int = 0

    @property
    def head(self) -> int:
        """Return the number of weights of the LM head; tied embeddings share these weights."""
        return self.vocab * self.hidden

    @property
    def linear(self) -> int:
        """Return the number of weights of all linear layers except the head."""
        return sum(inputs * outputs for _, inputs, outputs in self.matrices)

    def adapter_matrices(self, lora: LoraConfig) -> Sequence[Matrix]:
        """Return the matrices with an adapter."""
        if lora.rank == 0:
            return ()
        if lora.targets == ["all-linear"]:
            return self.matrices
        return [m for m in self.matrices if any(m[0] == t or m[0].endswith(f".{t}") for t in lora.targets)]

    def num_trained(self, lora: LoraConfig) -> int:
        """Return the number of trained weights: all, or r (inputs + outputs) for each adapted matrix."""
        if lora.rank == 0:
            return self.weights
        return sum(lora.rank * (inputs + outputs) for _, inputs, outputs in self.adapter_matrices(lora))


def read_shape(name: str, lora: LoraConfig | None = None) -> Shape:
    """Return the shape of the model `name`. Raises UserError if no model has this name, or if the model lacks the
    targets of `lora`."""
    config = read_model_config(name)
    with torch.device("meta"):  # tensors on this device have shapes but no memory
        module = build_module(config, torch.bfloat16)
    module.tie_weights()  # transformers 5.0 does not tie weights on this device
    if lora is not None and lora.rank > 0:
        target_names(module, lora.targets)
    return shape_of(module, name)


def read_model_config(name: str) -> Any:
    """Return the transformers config of a model; for an adapter's directory, the config of the base model.

    Raises UserError if no model has this name, or transformers does not know its architecture.
    """
    name = base_model_name(Path(os.path.expanduser(name))) or name
    match kind_of(name):
        case ModelKind.PACKAGED:
            return AutoConfig.for_model(**read_packaged_config(name))
        case ModelKind.GGUF:
            return gguf_config(Path(os.path.expanduser(name)))
    directory = find_config(name)
    with explain_failure("config", directory):
        return AutoConfig.from_pretrained(directory, trust_remote_code=False)


def build_module(config: Any, dtype: torch.dtype) -> Any:
    """Build the module of a config with random weights, on PyTorch's default device. Raises UserError unless the model
    is a causal LM."""
    with explain_failure("architecture", config.model_type):
        settings = {"dtype": dtype, "attn_implementation": ATTENTION, "trust_remote_code": False}
        module = AutoModelForCausalLM.from_config(config, **settings)
    module.config.use_cache = False
    return module.eval()


def shape_of(module: Any, name: str = "") -> Shape:
    """Return the shape of a module, which may be on the meta device."""
    text = module.config.get_text_config()
    family, settings, head = module.config.model_type, vars(text), module.get_output_embeddings()
    matrices = tuple(
        (path, layer.in_features, layer.out_features)
        for path, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and layer is not head
    )
    weights = sum(parameter.numel() for parameter in module.parameters())
    embedding = module.get_input_embeddings().weight
    unread = 0 if embedding is head.weight else embedding.numel()
    heads = _most(text.num_attention_heads)
    head_dim = _most(settings.get("head_dim") or text.hidden_size // heads)
    names = {path.split(".layers.0.", 1)[1] for path, *_ in matrices if ".layers.0." in path}
    return Shape(
        name=name,
        family=family,
        layers=int(text.num_hidden_layers),
        hidden=int(text.hidden_size),
        inner=_most(settings.get("intermediate_size") or 4 * text.hidden_size),
        query=heads * head_dim,
        key=_most(settings.get("num_key_value_heads") or heads) * head_dim,
        heads=heads,
        vocab=len(head.weight),
        weights=weights,
        active=weights - unread,
        is_fused=family in FUSED and settings.get("hidden_act") == "silu" and set(LINEARS) <= names,
        matrices=matrices,
        saved=_bytes_for_backward(module),
    )


def _most(number: float | Sequence[int]) -> int:
    """Return a number of a config, or the largest number if the config has one number per layer."""
    return int(number) if isinstance(number, int | float) else max(map(int, number))


@dataclass(frozen=True, slots=True)
class _Attention:
    """An attention plan that keeps the same tensors for the backward pass as FlexAttention: queries, keys, values,
    outputs, and a float32 number for each query and head."""

    def attend(self, inputs: LayerInputs) -> Tensor:
        out: Tensor = _Kept.apply(inputs.query, inputs.key, inputs.value)
        return out.transpose(1, 2)


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, out, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        _, key, value, *_ = ctx.saved_tensors
        return grad, torch.empty_like(key), torch.empty_like(value)


def _bytes_for_backward(module: nn.Module) -> int:
    """Measure the bytes per token that the module's own forward keeps for the backward pass, with rows of two lengths.
    Return 0 if the forward needs the values of tensors, for example to select experts, since meta tensors have no
    values."""
    if next(module.parameters()).device.type != "meta":
        return 0
    try:
        return (_bytes_of_row(module, LONG) - _bytes_of_row(module, SHORT)) // (LONG - SHORT)
    except (NotImplementedError, RuntimeError, TypeError, AttributeError):
        return 0


def _bytes_of_row(module: Any, length: int) -> int:
    weights = {_storage(parameter) for parameter in module.parameters()}
    kept: dict[int, Tensor] = {}
    row = torch.empty(1, length, dtype=torch.long, device="meta")
    # Pass a mask. Without it, transformers would read the positions to find the starts of sequences.
    settings = {"attention_mask": row, "use_cache": False, "attention_plan": _Attention()}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.setdefault(_storage(tensor), tensor), lambda tensor: tensor
    ):
        module.get_decoder()(input_ids=row, position_ids=row, **settings)
    return sum(tensor.untyped_storage().nbytes() for key, tensor in kept.items() if key not in weights)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
