"""LoRA adapters made by PEFT: merged by the server, they answer as PEFT's own model does."""

import copy
import json
import math
import warnings
from pathlib import Path
from typing import Any

import httpx
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from packages.serve.tests.conftest import serving
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.models.adapter import read_adapter
from slimrl.models.load import load_policy, save_policy
from slimrl.models.lora import merge_parameters
from slimrl_serve.base_weights import BaseWeights
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


def change_config(directory: Path, **settings: Any) -> None:
    path = directory / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def answer(http: httpx.Client, model: str) -> dict[str, Any]:
    reply = http.post("/v1/completions", json={**BODY, "model": model})
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


@pytest.mark.slow
def test_an_adapter_answers_as_peft_does_and_leaves_no_trace(tiny_dir: Path, tmp_path: Path) -> None:
    first = make_adapter(tmp_path / "first", 1)
    second = make_adapter(tmp_path / "second", 2, use_rslora=True)
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as http:

        def load(path: str, **extra: Any) -> httpx.Response:
            return http.post(
                "/load_lora_adapter", json={"lora_name": "ada", "lora_path": str(tmp_path / path), **extra}
            )

        base = answer(http, "tiny")
        for version, (path, merged) in enumerate((("first", first), ("second", second)), 1):
            assert load(path).status_code == 200
            choice = answer(http, "ada")
            assert set(choice["token_versions"]) == {version}
            tokens, logprobs = naive_greedy(merged, PROMPT, [0] * 12, {0: merged.state_dict()})
            assert choice["token_ids"] == tokens
            assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs, abs=1e-3)
        refused = http.post("/v1/completions", json={**BODY, "model": "tiny"})
        assert refused.status_code == 404
        assert "merged into the weights" in refused.json()["error"]["message"]
        (model,) = http.get("/v1/models").json()["data"]
        assert (model["id"], model["parent"]) == ("ada", "tiny")
        for body in (
            {"lora_name": "other", "lora_path": str(tmp_path / "first")},
            {"lora_name": "tiny", "lora_path": "x"},
        ):
            assert http.post("/load_lora_adapter", json=body).status_code == 400
        update = http.post("/update_weights", json={"weight_dir": str(tiny_dir), "version": 9})
        assert "unload it" in update.json()["error"]["message"]
        unloaded = http.post("/unload_lora_adapter", json={"lora_name": "ada", "version": 7})
        assert unloaded.status_code == 200
        again = answer(http, "tiny")
        assert again["token_ids"] == base["token_ids"]
        assert again["logprobs"] == base["logprobs"]
        assert set(again["token_versions"]) == {7}


@pytest.mark.slow
def test_an_adapter_that_was_trained_here_is_served_as_it_was_sampled(tiny_dir: Path, tmp_path: Path) -> None:
    lora = LoraConfig(rank=4, alpha=8.0)
    policy = load_policy(ModelConfig(name=str(tiny_dir), dtype="float32", device="cpu", num_threads=1, lora=lora))
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)), alpha=0.3)
    save_policy(policy, tmp_path / "step_1")
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as http:
        body = {"lora_name": "ada", "lora_path": str(tmp_path / "step_1" / "adapter")}
        assert http.post("/load_lora_adapter", json=body).status_code == 200
        assert_equal(dict(server.service.model.policy.module.named_parameters()), merge_parameters(policy.module))
        assert len(answer(http, "ada")["token_ids"]) == 12


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


@pytest.mark.slow
def test_an_adapter_that_cannot_be_put_in_place_changes_nothing(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate(("first", "second", "broken")):
        make_adapter(tmp_path / name, seed)
    tensors = load_file(tmp_path / "broken" / "adapter_model.safetensors")
    *_, last = tensors
    tensors[last][0, 0] = torch.inf
    save_file(tensors, tmp_path / "broken" / "adapter_model.safetensors")
    publish = Engine.publish

    def fail_once(engine: Engine, version: int) -> None:
        monkeypatch.setattr(Engine, "publish", publish)
        raise MemoryError

    single_use = httpx.Limits(max_keepalive_connections=0)  # an error of the server ends the connection
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30, limits=single_use) as http:
        for name, present in (("first", "tiny"), ("second", "ada")):
            before, weights = answer(http, present), copy.deepcopy(server.service.model.policy.module.state_dict())
            for path, status in ((name, 500), ("broken", 400)):
                if status == 500:
                    monkeypatch.setattr(Engine, "publish", fail_once)
                body = {"lora_name": "ada", "lora_path": str(tmp_path / path)}
                assert http.post("/load_lora_adapter", json=body).status_code == status
                assert_equal(server.service.model.policy.module.state_dict(), weights)
                again = answer(http, present)
                assert (again["token_ids"], again["token_versions"]) == (before["token_ids"], before["token_versions"])
            assert http.post("/load_lora_adapter", json={**body, "lora_path": str(tmp_path / name)}).status_code == 200
            assert answer(http, "ada")["token_ids"] != before["token_ids"]


def test_the_name_changes_before_the_weights_do(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_adapter(tmp_path, 1)
    names = []
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as http:

        def watched(*arguments: Any) -> Any:
            names.append(server.service.name)
            return put(*arguments)

        put = BaseWeights.put
        monkeypatch.setattr(BaseWeights, "put", watched)
        http.post("/load_lora_adapter", json={"lora_name": "ada", "lora_path": str(tmp_path)})
        http.post("/unload_lora_adapter", json={"lora_name": "ada"})
    assert names == ["ada", "tiny"]


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
