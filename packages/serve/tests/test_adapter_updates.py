"""A trainer's adapter alone as new weights: merged by the server, it is bit for bit what the trainer computes with."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import peft
import pytest
import torch

from packages.serve.tests.conftest import InferenceServer, config_of, serving
from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.models.load import Policy, load_policy, save_weights
from slimrl.models.lora import AdapterForm, adapter_form, adapter_tensors, merge_parameters
from slimrl_cluster.inference.remote_client import RemoteClient
from slimrl_cluster.inference.server_link import SamplerAddress
from slimrl_cluster.launch.weights import WeightSender
from tests.inference.naive import naive_greedy
from tests.tiny import tiny_module

CPU = torch.device("cpu")
PROMPT = list(range(10, 30))
GREEDY = {"temperature": 0, "max_tokens": 12, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}


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
    return dict(server.service.model.policy.module.named_parameters())


@contextmanager
def client_of(server: InferenceServer) -> Iterator[RemoteClient]:
    client = RemoteClient(SamplerAddress(server.address, timeout_s=10), frozenset([2]), 64)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture
def http(tiny_dir: Path) -> Iterator[httpx.Client]:
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as client:
        yield client


@pytest.mark.slow
def test_an_adapter_answers_as_peft_does(tiny_dir: Path, tmp_path: Path) -> None:
    adapters = [make_adapter(tmp_path / f"{version}", version, use_rslora=version == 1) for version in range(2)]
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, timeout=30) as http:
        for version, merged in enumerate(adapters):
            body = {"weight_dir": str(tmp_path / f"{version}"), "version": version}
            assert http.post("/update_weights", json=body).status_code == 200
            choice = http.post("/v1/completions", json={"prompt": PROMPT, **GREEDY}).json()["choices"][0]
            assert set(choice["token_versions"]) == {version}
            tokens, logprobs = naive_greedy(merged, PROMPT, [0] * 12, {0: merged.state_dict()})
            assert choice["token_ids"] == tokens
            assert choice["logprobs"]["token_logprobs"] == pytest.approx(logprobs, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_version_is_merged_into_the_weights_of_the_start(tiny_dir: Path, tmp_path: Path, dtype: str):
    all_linear, few = adapted(tiny_dir, dtype), adapted(tiny_dir, dtype, targets=["q_proj"])
    model = ModelConfig(name=str(tiny_dir), device="cpu", dtype=dtype, num_threads=1)
    config = config_of(tiny_dir).model_copy(update={"model": model})
    with InferenceServer(config) as server, client_of(server) as client:
        for version, policy in enumerate((all_linear, all_linear, few, all_linear)):
            train(policy, version)
            save_weights(policy, tmp_path / f"{version}", adapter=adapter_form(policy.module))
            client.wait(client.give_weights(tmp_path / f"{version}", version))
            assert_equal(served(server), merge_parameters(policy.module))
            assert server.service.engine.version == version
        form = adapter_form(all_linear.module)
        with WeightSender([client], "127.0.0.1", CPU, 10) as sender:
            for version in (5, 6):
                train(all_linear, version)
                sender.send(adapter_tensors(all_linear.module), version, form)
                assert_equal(served(server), merge_parameters(all_linear.module))
    save_weights(all_linear, tmp_path / "whole")
    sizes = [sum(path.stat().st_size for path in (tmp_path / name).iterdir()) for name in ("3", "whole")]
    assert sizes[0] < sizes[1] / 2


@pytest.mark.slow
def test_an_adapter_for_weights_that_are_gone_is_refused_and_changes_nothing(tiny_dir: Path, tmp_path: Path):
    policy = adapted(tiny_dir)
    train(policy, 0)
    save_weights(policy, tmp_path / "whole")
    save_weights(policy, tmp_path / "alone", adapter=adapter_form(policy.module))
    with serving(tiny_dir) as server, client_of(server) as client:
        client.wait(client.give_weights(tmp_path / "whole", 1))
        weights = {name: tensor.clone() for name, tensor in served(server).items()}
        with pytest.raises(UserError, match="the weights that the server was started with have been replaced since"):
            client.wait(client.give_weights(tmp_path / "alone", 2))
        form, tensors = adapter_form(policy.module), adapter_tensors(policy.module)
        with (
            WeightSender([client], "127.0.0.1", CPU, 2.0) as sender,
            pytest.raises(UserError, match="have been replaced since"),
        ):
            sender.send(tensors, 2, form)
        assert_equal(served(server), weights)
        assert server.service.engine.version == 1


def test_an_adapter_alone_is_an_update_of_its_own(http: httpx.Client, tiny_dir: Path, tmp_path: Path):
    make_adapter(tmp_path / "adapter", 1)
    post = http.post
    post("/start_weight_update")
    whole, alone = ({"update_info": {"weight_dir": str(path)}} for path in (tiny_dir, tmp_path / "adapter"))
    assert post("/update_weights", json=whole).status_code == 200
    refused = post("/update_weights", json=alone)
    assert refused.status_code == 400 and "an update of its own" in refused.json()["error"]["message"]


@pytest.mark.slow
def test_an_adapter_of_other_weights_is_refused(tiny_dir: Path, tmp_path: Path):
    other = adapted(tiny_dir)
    with torch.no_grad():
        other.module.get_input_embeddings().weight.mul_(1.5)
    half = adapted(tiny_dir, "bfloat16")
    with serving(tiny_dir) as server, client_of(server) as client:
        before = {name: tensor.clone() for name, tensor in served(server).items()}
        for name, policy in (("other", other), ("half", half)):
            save_weights(policy, tmp_path / name, adapter=adapter_form(policy.module))
            with pytest.raises(UserError, match="of other weights than those that the server was started with"):
                client.wait(client.give_weights(tmp_path / name, 1))
        assert_equal(served(server), before)


@pytest.mark.slow
def test_an_adapter_that_gives_no_finite_numbers_leaves_the_one_before(tiny_dir: Path, tmp_path: Path):
    policy = adapted(tiny_dir)
    form = adapter_form(policy.module)
    with serving(tiny_dir) as server, client_of(server) as client:
        train(policy, 1)
        save_weights(policy, tmp_path / "good", adapter=form)
        client.wait(client.give_weights(tmp_path / "good", 1))
        good = {name: tensor.clone() for name, tensor in served(server).items()}
        *_, last = adapter_tensors(policy.module).values()
        with torch.no_grad():
            last.fill_(torch.inf)
        save_weights(policy, tmp_path / "bad", adapter=form)
        with pytest.raises(UserError, match="has numbers that are NaN or infinite"):
            client.wait(client.give_weights(tmp_path / "bad", 2))
        assert_equal(served(server), good)
        assert server.service.engine.version == 1


@pytest.mark.slow
def test_an_adapter_that_cannot_be_put_in_place_leaves_the_one_before(
    tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    publish = Engine.publish

    def fail_once(engine: Engine, version: int) -> None:
        monkeypatch.setattr(Engine, "publish", publish)
        raise MemoryError

    single_use = httpx.Limits(max_keepalive_connections=0)  # an error of the server ends the connection
    with serving(tiny_dir) as server, httpx.Client(base_url=server.address, limits=single_use) as http:
        for version in range(2):
            before = {name: tensor.clone() for name, tensor in served(server).items()}
            make_adapter(tmp_path / f"{version}", version)
            body = {"weight_dir": str(tmp_path / f"{version}"), "version": version}
            monkeypatch.setattr(Engine, "publish", fail_once)
            assert http.post("/update_weights", json=body).status_code == 500
            assert_equal(served(server), before)
            assert server.service.engine.version == version - 1
            assert http.post("/update_weights", json=body).status_code == 200
            assert server.service.engine.version == version


@pytest.mark.slow
def test_what_was_received_for_other_weights_is_not_finished(http: httpx.Client, tiny_dir: Path, tmp_path: Path):
    policy = adapted(tiny_dir)
    train(policy, 1)
    save_weights(policy, tmp_path / "alone", adapter=adapter_form(policy.module))
    assert http.post("/start_weight_update").status_code == 200
    body = {"update_info": {"weight_dir": str(tmp_path / "alone")}}
    assert http.post("/update_weights", json=body).status_code == 200
    assert http.post("/update_weights", json={"weight_dir": str(tiny_dir), "version": 5}).status_code == 200
    refused = http.post("/finish_weight_update", json={"weight_version": "6"})
    assert refused.status_code == 400 and "There is no update to finish" in refused.json()["error"]["message"]


@pytest.mark.slow
def test_a_broadcast_adapter_that_does_not_fit_is_refused_before_it_is_received(tiny_dir: Path):
    whole, query = adapter_tensors(adapted(tiny_dir).module), "base_model.model.model.layers.0.self_attn.q_proj"
    no_fit = "does not fit the weight's"
    with serving(tiny_dir) as server, client_of(server) as client:
        for tensors, complaint in (
            (
                {**whole, "nobody": torch.zeros(3)},
                "the broadcast has the tensor nobody, which adapts nothing of the model",
            ),
            ({"base_model.model.model.norm.lora_A.weight": torch.zeros(4, 32)}, no_fit),
            ({f"{query}.lora_A.weight": torch.zeros(9, 9)}, no_fit),
            ({f"{query}.lora_A.weight": torch.zeros(4)}, no_fit),
        ):
            with WeightSender([client], "127.0.0.1", CPU, 1.0) as sender, pytest.raises(UserError, match=complaint):
                sender.send(tensors, 1, AdapterForm(4, 1.5))
