"""A trainer's adapter alone as new weights: merged by the server, it is bit for bit what the trainer computes with."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import peft
import pytest
import torch

from packages.serve.tests.conftest import InferenceServer, connected, post
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.inference.engine import Engine
from slimrl.models.load import Policy, load_policy, save_weights
from slimrl.models.lora import adapter_tensors, base_fingerprint, merge_parameters
from tests.inference.naive import naive_greedy
from tests.tiny import tiny_module

PROMPT = list(range(10, 30))
GREEDY = {"temperature": 0, "max_tokens": 12, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
Own = tuple[InferenceServer, httpx.Client]


def make_adapter(directory: Path, seed: int, **settings: Any) -> torch.nn.Module:
    """Saves an adapter whose matrices are both random; returns the base model with the adapter merged."""
    config = {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(tiny_module("llama"), peft.LoraConfig(**config))
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in adapted.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
        adapted.save_pretrained(directory)
        merged = adapted.merge_and_unload().eval()
    merged.set_attn_implementation("eager")
    return merged


def adapted(model: Path, dtype: str = "float32", **settings: object) -> Policy:
    lora = LoraConfig.model_validate({"rank": 4, "alpha": 6.0, **settings})
    return load_policy(ModelConfig(name=str(model), dtype=dtype, device="cpu", num_threads=1, lora=lora))


@torch.no_grad()
def train(policy: Policy, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in policy.module.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)


def served(server: InferenceServer) -> dict[str, torch.Tensor]:
    """A copy of the served weights."""
    parameters = server.service.policy.module.named_parameters()
    return {name: tensor.detach().clone() for name, tensor in parameters}


def assert_equal(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, others[name]) for name, tensor in weights.items())


def update(http: httpx.Client, directory: Path, version: int, status: int = 200) -> str:
    """Send new weights; returns the message of an error."""
    reply = post(http, "/update_weights", {"weight_dir": str(directory), "version": version}, status)
    return "" if status == 200 else reply["error"]["message"]


@pytest.fixture
def own(tiny_dir: Path) -> Iterator[Own]:
    with connected(tiny_dir) as started:
        yield started


@pytest.mark.slow
def test_an_adapter_answers_as_peft_does(own: Own, tmp_path: Path) -> None:
    _, http = own
    for version in range(2):
        merged = make_adapter(tmp_path / f"{version}", version, use_rslora=version == 1)
        update(http, tmp_path / f"{version}", version)
        choice = post(http, "/v1/completions", {"prompt": PROMPT, **GREEDY})["choices"][0]
        assert set(choice["token_versions"]) == {version}
        tokens, logprobs = naive_greedy(merged, PROMPT, [0] * 12, {0: merged.state_dict()})
        assert choice["token_ids"] == tokens
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_version_is_merged_into_the_weights_of_the_start(tiny_dir: Path, tmp_path: Path, dtype: str) -> None:
    all_linear, few = adapted(tiny_dir, dtype), adapted(tiny_dir, dtype, targets=["q_proj"])
    model = ModelConfig(name=str(tiny_dir), device="cpu", dtype=dtype, num_threads=1)
    with connected(tiny_dir, model=model) as (server, http):
        for version, policy in enumerate((all_linear, all_linear, few, all_linear)):
            train(policy, version)
            save_weights(policy, tmp_path / f"{version}", base=base_fingerprint(policy.module))
            update(http, tmp_path / f"{version}", version)
            assert_equal(served(server), merge_parameters(policy.module))
            assert server.service.engine.version == version
    save_weights(all_linear, tmp_path / "whole")
    sizes = [sum(path.stat().st_size for path in (tmp_path / name).iterdir()) for name in ("3", "whole")]
    assert sizes[0] < sizes[1] / 2


@pytest.mark.slow
def test_an_adapter_for_weights_that_are_gone_is_refused_and_changes_nothing(
    own: Own, tiny_dir: Path, tmp_path: Path
) -> None:
    (server, http), policy = own, adapted(tiny_dir)
    train(policy, 0)
    save_weights(policy, tmp_path / "whole")
    save_weights(policy, tmp_path / "alone", base=base_fingerprint(policy.module))
    update(http, tmp_path / "whole", 1)
    before, gone = served(server), "the weights that the server was started with have been replaced since"
    assert gone in update(http, tmp_path / "alone", 2, 400)
    assert_equal(served(server), before)
    assert server.service.engine.version == 1


@pytest.mark.slow
@pytest.mark.parametrize("case", ["of other weights", "of another dtype", "not finite"])
def test_an_adapter_that_does_not_fit_leaves_the_weights_as_they_are(
    own: Own, tiny_dir: Path, tmp_path: Path, case: str
) -> None:
    server, http = own
    make_adapter(tmp_path / "good", 1)
    update(http, tmp_path / "good", 1)
    before, policy = served(server), adapted(tiny_dir, "bfloat16" if case == "of another dtype" else "float32")
    complaint = "of other weights than those that the server was started with"
    with torch.no_grad():
        if case == "of other weights":
            policy.module.get_input_embeddings().weight.mul_(1.5)
        if case == "not finite":
            complaint = "has numbers that are NaN or infinite"
            [*adapter_tensors(policy.module).values()][-1].fill_(torch.inf)
    save_weights(policy, tmp_path / "bad", base=base_fingerprint(policy.module))
    assert complaint in update(http, tmp_path / "bad", 2, 400)
    assert_equal(served(server), before)
    assert server.service.engine.version == 1


@pytest.mark.slow
def test_an_adapter_that_cannot_be_put_in_place_leaves_the_one_before(
    own: Own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server, http), publish = own, Engine.publish
    http.headers["Connection"] = "close"  # as an error of the server does

    def fail_once(engine: Engine, version: int) -> None:
        monkeypatch.setattr(Engine, "publish", publish)
        raise MemoryError

    for version in range(2):
        before = served(server)
        make_adapter(tmp_path / f"{version}", version)
        monkeypatch.setattr(Engine, "publish", fail_once)
        update(http, tmp_path / f"{version}", version, 500)
        assert_equal(served(server), before)
        assert server.service.engine.version == version - 1
        update(http, tmp_path / f"{version}", version)
        assert server.service.engine.version == version
