"""Adapters as PEFT saves them: what equals the base model is taken, and what a tied model cannot hold is named."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from slimrl.errors import UserError
from slimrl.models.adapter import CONFIG, WEIGHTS, merge, read_adapter
from tests.tiny import tiny_module

LAYERS = {"r": 2, "lora_alpha": 4, "task_type": "CAUSAL_LM"}
SAVED = {"save_embedding_layers": True}


def save(directory: Path, family: str, trained: str = "q_proj", saving: Any = None, **settings: Any) -> torch.nn.Module:
    """Save an adapter of PEFT's whose pairs in layers that `trained` names are random; return the merged model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(tiny_module(family), peft.LoraConfig(**{**LAYERS, **settings}))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name and trained in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        adapted.save_pretrained(directory, **(saving or {}))
        return adapted.merge_and_unload()


def merged_here(directory: Path, family: str) -> dict[str, torch.Tensor]:
    module = tiny_module(family)
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return parameters | merge(read_adapter(directory, module), parameters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "saving", "settings"),
    [
        ("qwen3", SAVED, {"target_modules": ["q_proj"]}),
        ("gemma3", SAVED, {"target_modules": ["q_proj", "down_proj"]}),
        ("qwen3", {}, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
        ("qwen3", {}, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
        ("qwen3", {}, {"target_modules": ["q_proj", "lm_head"]}),  # its pair is the identity: only q_proj was trained
        ("qwen3", {}, {"target_modules": ["q_proj", "embed_tokens"]}),
        ("llama", SAVED, {"target_modules": ["q_proj"]}),
        ("llama", {}, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "norm"]}),
    ],
)
def test_what_equals_the_base_is_taken(family: str, saving: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = save(tmp_path, family, "q_proj", saving, **settings).get_parameter(
        "model.layers.0.self_attn.q_proj.weight"
    )
    ours = merged_here(tmp_path, family)
    torch.testing.assert_close(ours["model.layers.0.self_attn.q_proj.weight"], theirs, atol=1e-6, rtol=1e-5)
    embeddings = tiny_module(family).get_parameter("model.embed_tokens.weight")
    assert torch.equal(ours["model.embed_tokens.weight"], embeddings)


def test_a_head_of_its_own_is_adapted(tmp_path: Path) -> None:
    theirs = save(tmp_path, "llama", "lora_", target_modules=["q_proj", "lm_head"]).get_parameter("lm_head.weight")
    torch.testing.assert_close(merged_here(tmp_path, "llama")["lm_head.weight"], theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "layer", "other"),
    [
        ({"target_modules": ["q_proj", "lm_head"]}, "lm_head", r"model\.embed_tokens\.weight"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, r"model\.embed_tokens", r"lm_head\.weight"),
        ({"target_modules": ["lm_head"], "ensure_weight_tying": True}, ".*", r"(lm_head|model\.embed_tokens)\.weight"),
    ],
)
def test_a_trained_pair_on_a_tied_weight_is_refused_as_such(
    settings: dict[str, Any], layer: str, other: str, tmp_path: Path
) -> None:
    save(tmp_path, "qwen3", "lora_", **settings)
    with pytest.raises(UserError, match=rf"adapter on {layer}, and this model is tied: {other}.*target_modules"):
        read_adapter(tmp_path, tiny_module("qwen3"))


def test_an_adapter_on_embeddings_of_their_own_is_refused_as_such(tmp_path: Path) -> None:
    save(tmp_path, "llama", "lora_", target_modules=["q_proj", "embed_tokens"])
    with pytest.raises(UserError, match=r"adapter on the embeddings model\.embed_tokens.*without embed_tokens"):
        read_adapter(tmp_path, tiny_module("llama"))


@pytest.mark.parametrize(("family", "module"), [("qwen3", "lm_head"), ("llama", "lm_head"), ("llama", "model.norm")])
def test_a_whole_weight_that_differs_is_refused_by_name(family: str, module: str, tmp_path: Path) -> None:
    save(tmp_path, family, target_modules=["q_proj"], modules_to_save=[module.removeprefix("model.")])
    tensors = load_file(tmp_path / WEIGHTS)
    (name,) = [name for name in tensors if module in name]
    save_file(tensors | {name: tensors[name] + 1}, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match=rf"{name}, a whole weight that differs.*merge_and_unload"):
        read_adapter(tmp_path, tiny_module(family))


def test_a_base_weight_is_compared_with_the_base_while_another_adapter_is_merged(tmp_path: Path) -> None:
    save(tmp_path, "llama", "lora_", target_modules=["q_proj", "lm_head"])
    module = tiny_module("llama")
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    with torch.no_grad():
        module.get_parameter("lm_head.weight").add_(1)
    with pytest.raises(UserError, match="differs from the base"):
        read_adapter(tmp_path, module)
    assert "lm_head.weight" in read_adapter(tmp_path, module, {"lm_head.weight": before["lm_head.weight"]}).pairs


def change_config(directory: Path, **settings: Any) -> None:
    path = directory / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"use_dora": True},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 2}},
        {"kasa_config": {}},
        *(
            {"init_lora_weights": name}
            for name in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga")  # they change the base
        ),
        *({"lora_alpha": value} for value in (math.nan, math.inf, -1, 0, True, 10**400, "6")),
        {"r": 10**8},
    ],
    ids=lambda settings: str(settings)[:40],
)
def test_settings_that_cannot_be_merged_are_refused_by_name(tmp_path: Path, settings: dict[str, Any]) -> None:
    save(tmp_path, "llama", target_modules=["q_proj"])
    change_config(tmp_path, **settings)
    numbers = {"lora_alpha": "both must be positive", "r": "r at most"}
    ((name, _),) = settings.items()
    with pytest.raises(UserError, match=numbers.get(name, f"has {name} = ")):
        read_adapter(tmp_path, tiny_module("llama"))


@pytest.mark.parametrize("init", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_an_initialisation_that_keeps_the_base_is_taken(tmp_path: Path, init: Any) -> None:
    save(tmp_path, "llama", target_modules=["q_proj"])
    change_config(tmp_path, init_lora_weights=init)
    assert read_adapter(tmp_path, tiny_module("llama")).scale == 2.0


def pair(directory: Path, dtype: torch.dtype, shape: tuple[int, int] = (2, 4)) -> Path:
    """Save an adapter of rank 2 for a linear layer of 4 x 4, whose first matrix has this dtype and shape."""
    (directory / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    a, b = (f"base_model.model.0.lora_{part}.weight" for part in "AB")
    save_file({a: torch.ones(shape).to(dtype), b: torch.ones(4, 2)}, directory / WEIGHTS)
    return directory


@pytest.mark.parametrize(
    ("dtype", "shape", "complaint"),
    [
        *((dtype, (2, 4), "quantised") for dtype in (torch.complex64, torch.int8, torch.bool, torch.float8_e4m3fn)),
        (torch.float32, (200, 400), "does not fit"),
    ],
)
def test_pairs_of_other_numbers_or_sizes_are_refused(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, int], complaint: str
) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False))
    assert read_adapter(pair(tmp_path, torch.float16), module).pairs
    with pytest.raises(UserError, match=complaint):
        read_adapter(pair(tmp_path, dtype, shape), module)


@pytest.mark.parametrize(
    "config", ["[" * 100_000, '{"peft_type": "LORA", "r": ' + "9" * 10_000 + "}", " " * 2**21, "\xff"], ids=range(4)
)
def test_a_damaged_config_is_a_line(tmp_path: Path, config: str) -> None:
    (tmp_path / CONFIG).write_bytes(config.encode("latin-1"))
    with pytest.raises(UserError, match=r"adapter_config\.json"):
        read_adapter(tmp_path, torch.nn.Sequential(torch.nn.Linear(4, 4)))
