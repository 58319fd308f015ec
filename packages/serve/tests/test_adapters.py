"""LoRA adapters made by PEFT: merged by the server, they answer as PEFT's own model does."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import httpx
import peft
import pytest
import torch

from packages.serve.tests.conftest import serving
from slimrl.errors import UserError
from slimrl.models.adapter import read_adapter
from tests.inference.naive import naive_greedy
from tests.tiny import tiny_module

PROMPT = list(range(10, 30))
CHANGING_INITS = ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga")
BODY = {
    "prompt": PROMPT,
    "temperature": 0,
    "max_tokens": 12,
    "logprobs": 0,
    "return_token_ids": True,
    "ignore_eos": True,
}


def make_adapter(directory: Path, seed: int, family: str = "llama", **settings: Any) -> torch.nn.Module:
    """Saves an adapter whose matrices are both random; returns the base model with the adapter merged."""
    config = peft.LoraConfig(
        **{"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", **settings}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(tiny_module(family), config)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        adapted.save_pretrained(directory)
        merged = adapted.merge_and_unload().eval()
    merged.set_attn_implementation("eager")
    return merged


def assert_equal(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, others[name]) for name, tensor in weights.items())


@pytest.mark.slow
def test_an_adapter_answers_as_peft_does(tiny_dir: Path, tmp_path: Path) -> None:
    adapters = [make_adapter(tmp_path / f"{version}", version, use_rslora=version == 1) for version in range(2)]
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as http:
        for version, merged in enumerate(adapters):
            body = {"weight_dir": str(tmp_path / f"{version}"), "version": version}
            assert http.post("/update_weights", json=body).status_code == 200
            choice = http.post("/v1/completions", json=BODY).json()["choices"][0]
            assert set(choice["token_versions"]) == {version}
            tokens, logprobs = naive_greedy(merged, PROMPT, [0] * 12, {0: merged.state_dict()})
            assert choice["token_ids"] == tokens
            assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs, abs=1e-3)


def change_config(directory: Path, **settings: Any) -> None:
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"kasa_config": {}}, "kasa_config"),
        *(({"init_lora_weights": name}, "init_lora_weights") for name in CHANGING_INITS),
    ],
)
def test_what_cannot_be_merged_is_named(tmp_path: Path, settings: dict[str, Any], complaint: str) -> None:
    make_adapter(tmp_path, 1)
    change_config(tmp_path, **settings)
    with pytest.raises(Exception, match=f"has {complaint} = "):
        read_adapter(tmp_path, tiny_module("llama"))


@pytest.mark.parametrize("init", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_an_initialisation_that_leaves_the_base_alone_is_none_of_our_business(tmp_path: Path, init: Any) -> None:
    make_adapter(tmp_path, 1)
    change_config(tmp_path, init_lora_weights=init)
    assert read_adapter(tmp_path, tiny_module("llama")).scale == 1.5


@pytest.mark.parametrize(
    "numbers", [{"lora_alpha": value} for value in (math.nan, math.inf, -1, 0, True, 10**400, "6")]
)
def test_an_alpha_that_is_no_positive_number_is_refused(tmp_path: Path, numbers: dict[str, Any]) -> None:
    make_adapter(tmp_path, 1)
    change_config(tmp_path, **numbers)
    with pytest.raises(UserError, match="both must be positive"):
        read_adapter(tmp_path, tiny_module("llama"))


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    make_adapter(tmp_path, 1)
    with pytest.raises(Exception, match="which does not fit the weight"):
        read_adapter(tmp_path, torch.nn.ModuleDict({"model": WiderModel()}))


class WiderModel(torch.nn.Module):
    """Weights of the right names, a size too large."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for _ in range(2):
            layer = torch.nn.Module()
            layer.self_attn, layer.mlp = torch.nn.Module(), torch.nn.Module()
            layer.self_attn.q_proj = torch.nn.Linear(64, 64, bias=False)
            layer.mlp.down_proj = torch.nn.Linear(128, 64, bias=False)
            self.layers.append(layer)
