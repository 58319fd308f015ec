"""Adapters as PEFT saves them are merged as PEFT merges them, and what cannot be merged is named."""

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


def save(directory: Path, family: str, trained: str = "q_proj", **settings: Any) -> torch.nn.Module:
    """Save an adapter of PEFT's whose pairs in layers that `trained` names are random; return the merged model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(tiny_module(family), peft.LoraConfig(**{**LAYERS, **settings}))
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name and trained in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        adapted.save_pretrained(directory)
        return adapted.merge_and_unload()


def merged_here(directory: Path, family: str) -> dict[str, torch.Tensor]:
    module = tiny_module(family)
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return parameters | merge(read_adapter(directory, module), parameters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "targets"),
    [("qwen3", ["q_proj"]), ("gemma3", ["q_proj", "down_proj"]), ("llama", ["v_proj", "o_proj"])],
)
def test_the_merged_weights_are_pefts(family: str, targets: list[str], tmp_path: Path) -> None:
    theirs = dict(save(tmp_path, family, "lora_", target_modules=targets).named_parameters())
    ours = merged_here(tmp_path, family)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight.detach(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("qwen3", {"target_modules": ["q_proj", "lm_head"]}, r"lm_head.*(tied|merge_and_unload)"),
        ("qwen3", {"target_modules": ["q_proj", "embed_tokens"]}, r"embed_tokens.*(tied|merge_and_unload)"),
        ("llama", {"target_modules": ["q_proj", "embed_tokens"]}, r"embed_tokens.*merge_and_unload"),
        ("llama", {"target_modules": ["q_proj", "lm_head"]}, r"lm_head.*merge_and_unload"),
        ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["norm"]}, r"norm\.weight.*merge_and_unload"),
        ("qwen3", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, r"lm_head\.weight.*merge_and_unload"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused_by_name(
    family: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    save(tmp_path, family, "lora_", **settings)
    with pytest.raises(UserError, match=message):
        read_adapter(tmp_path, tiny_module(family))


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "llama", target_modules=["q_proj"])
    _, *others = tensors = load_file(tmp_path / WEIGHTS)
    save_file({other: tensors[other] for other in others}, tmp_path / WEIGHTS)
    with pytest.raises(UserError, match="does not have one pair of matrices"):
        read_adapter(tmp_path, tiny_module("llama"))


def change_config(directory: Path, **settings: Any) -> None:
    path = directory / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


NUMBERS = {"lora_alpha": "both must be positive", "r": "r at most"}
OTHER_INITS = ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga")  # they change the base


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("use_dora", True), ("bias", "all"), ("rank_pattern", {"q_proj": 2}), ("kasa_config", {})),
        *(("init_lora_weights", init) for init in OTHER_INITS),
        *(("lora_alpha", value) for value in (math.nan, math.inf, -1, 0, True, "6")),
        pytest.param("lora_alpha", 10**400, id="lora_alpha-huge"),
        *(("r", 10**8), ("r", 0.5)),
    ],
)
def test_settings_that_cannot_be_merged_are_refused_by_name(tmp_path: Path, name: str, value: Any) -> None:
    save(tmp_path, "llama", target_modules=["q_proj"])
    change_config(tmp_path, **{name: value})
    with pytest.raises(UserError, match=NUMBERS.get(name, f"has {name} = ")):
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
