"""A model's shape without its weights: the module on the meta device, where tensors have shapes and no memory.

Made from `config.json` or a `.gguf` file's header alone, so that nothing else is downloaded, converted or loaded.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from slimrl.errors import UserError
from slimrl.models.adapter import base_model_name
from slimrl.models.forward.attention import ATTENTION
from slimrl.models.gguf import gguf_config
from slimrl.models.names import ModelKind, kind_of
from slimrl.models.packaged import CONFIGS
from slimrl.models.resolve import find_config


def read_model_config(name: str) -> Any:
    """The transformers config of a model; that of the base model for the directory of an adapter.

    Raises UserError if there is no such model, or its config is of no architecture that transformers knows.
    """
    name = base_model_name(Path(os.path.expanduser(name))) or name
    match kind_of(name):
        case ModelKind.PACKAGED:
            settings = dict(CONFIGS[name])
            return AutoConfig.for_model(settings.pop("model_type"), **settings)
        case ModelKind.GGUF:
            return gguf_config(Path(os.path.expanduser(name)))
    directory = find_config(name)
    try:
        return AutoConfig.from_pretrained(directory, trust_remote_code=False)
    except Exception as error:  # of many kinds, as in `models/load.py`
        raise UserError(
            f"{directory / 'config.json'} is of no model that slimrl can train: {type(error).__name__}: {error}"
        ) from error


def skeleton(config: Any, num_layers: int = 0) -> nn.Module:
    """The module of a config on the meta device; with `num_layers`, of its first layers alone. Raises UserError for an
    architecture that is no causal LM."""
    with torch.device("meta"):
        module: Any = build_module(with_layers(config, num_layers) if num_layers else config, torch.bfloat16)
    module.tie_weights()  # transformers 5.0 leaves it out on this device
    return module  # type: ignore[no-any-return]


def build_module(config: Any, dtype: torch.dtype) -> nn.Module:
    """The module of a config with random weights, on PyTorch's default device. Raises UserError as `skeleton` does."""
    try:
        module: Any = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=ATTENTION, trust_remote_code=False
        )
    except ValueError as error:
        raise UserError(f"a model of type {config.model_type} cannot be trained: {error}") from error
    module.config.use_cache = False
    return module.eval()  # type: ignore[no-any-return]


def with_layers(config: Any, num_layers: int) -> Any:
    """The config of a model with the first layers alone."""
    changed = type(config)(**config.to_dict())
    text = changed.get_text_config()
    text.num_hidden_layers = num_layers
    if types := vars(text).get("layer_types"):
        text.layer_types = types[:num_layers]
    return changed
