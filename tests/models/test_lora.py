"""LoRA policies train the pairs alone, and PEFT reads their files."""

import json
import sys
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from slimrl.config.model import LoraConfig, ModelConfig
from slimrl.errors import UserError
from slimrl.models import resolve as resolve_module
from slimrl.models.load import Policy, load_policy, save_policy
from slimrl.models.lora import adapt, merge_parameters, merge_weight
from slimrl.models.resolve import loadable_name
from tests.models.forward.forwards import move
from tests.models.gguf_files import write_gguf
from tests.tiny import FAMILIES, tiny_model_dir, tiny_module, tiny_tokenizer

LINEARS = 2 * 7  # of a tiny model


def adapted_policy(directory: Path, dtype: str = "float32", **settings: Any) -> Policy:
    config = {"name": str(directory), "dtype": dtype, "device": "cpu", "lora": {"rank": 4, "alpha": 8.0} | settings}
    return load_policy(ModelConfig.model_validate(config))


def plain_logits(module: nn.Module) -> Tensor:
    with torch.inference_mode():
        return module(input_ids=torch.arange(3, 40)[None]).logits[0].float()


def test_only_the_pairs_are_trained_and_they_are_float32(tiny_dir: Path) -> None:
    module = adapted_policy(tiny_dir, "bfloat16").module
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert len(trained) == 2 * LINEARS
    assert all(".lora_" in name and parameter.dtype == torch.float32 for name, parameter in trained.items())
    assert {p.dtype for p in module.parameters() if not p.requires_grad} == {torch.bfloat16}


@pytest.mark.parametrize(
    "family", ["llama", *(pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES if family != "llama")]
)
def test_a_fresh_adapter_changes_nothing_and_is_the_same_every_time(tmp_path: Path, family: str) -> None:
    directory = tiny_model_dir(tmp_path, family)
    module = adapted_policy(directory, "bfloat16").module
    torch.rand(3)  # somebody else's draws do not matter
    again = adapted_policy(directory, "bfloat16").module
    assert all(map(torch.equal, module.parameters(), again.parameters()))
    plain = load_policy(ModelConfig(name=str(directory), dtype="bfloat16", device="cpu")).module
    merged, own = merge_parameters(module), dict(plain.named_parameters())
    assert merged.keys() == own.keys()
    assert all(torch.equal(tensor, own[name]) for name, tensor in merged.items())


def test_what_is_too_small_for_bfloat16_still_counts_on_average() -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(256, 512, generator=generator).to(torch.bfloat16)
    A, B = torch.full((1, 512), 0.01), torch.full((256, 1), 0.01)
    assert torch.equal(merge_weight(weight, A, torch.zeros(256, 1), 2.0), weight)
    change = merge_weight(weight, A, B, 2.0).float() - weight.float()
    assert (change == 0).float().mean() > 0.8
    assert change.mean().item() == pytest.approx(2e-4, rel=0.1)
    step = weight.float().abs() * 2**-7  # of bfloat16, at most
    assert ((change - 2e-4).abs() <= step.clamp_min(2e-4)).all()
    exact = merge_weight(weight.float(), A, B, 2.0)
    torch.testing.assert_close(exact, weight.float() + 2e-4, rtol=0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of transformers, by PEFT
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "float32"),
        pytest.param("qwen3", "bfloat16", marks=pytest.mark.slow),
        pytest.param("gemma3", "float32", marks=pytest.mark.slow),
    ],
)
def test_what_is_saved_loads_in_plain_peft_and_in_plain_transformers(tmp_path: Path, family: str, dtype: str) -> None:
    base = tiny_model_dir(tmp_path, family)
    policy = adapted_policy(base, dtype)
    move(policy.module, 0.05)
    save_policy(policy, tmp_path / "step_1")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "step_1", dtype="auto")
    theirs = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base, dtype=policy.dtype), tmp_path / "step_1" / "adapter"
    )
    unmerged = plain_logits(theirs)
    near = 1e-4 if dtype == "float32" else 0.05
    for module in (policy.module, merged):
        found = plain_logits(module)
        assert (found - unmerged).norm() < near * unmerged.norm()
    assert sum(parameter.numel() for parameter in policy.module.parameters() if parameter.requires_grad) == sum(
        tensor.numel() for tensor in load_file(tmp_path / "step_1" / "adapter" / "adapter_model.safetensors").values()
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_adapters_directory_is_a_model(tmp_path: Path, tiny_dir: Path, dtype: str) -> None:
    policy = adapted_policy(tiny_dir, dtype)
    move(policy.module)
    save_policy(policy, tmp_path / "step_1")
    adapter = tmp_path / "step_1" / "adapter"
    by_adapter, by_weights = (
        load_policy(ModelConfig(name=str(name), dtype=dtype, device="cpu")) for name in (adapter, tmp_path / "step_1")
    )
    assert all(map(torch.equal, by_adapter.module.parameters(), by_weights.module.parameters()))
    with pytest.raises(UserError, match=r"is an adapter, and model\.lora\.rank = 4"):
        adapted_policy(adapter)
    settings = json.loads((adapter / "adapter_config.json").read_text())
    assert (settings["r"], settings["lora_alpha"], settings["inference_mode"]) == (4, 8.0, True)
    (adapter / "SHA256SUMS").unlink()  # which allows changes
    (adapter / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": None}))
    with pytest.raises(UserError, match="does not say which model it adapts"):
        load_policy(ModelConfig(name=str(adapter), device="cpu"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of transformers, by PEFT
@pytest.mark.parametrize("given", ["relative", "packaged", pytest.param("gguf", marks=pytest.mark.slow)])
def test_an_adapter_names_a_base_that_peft_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    directory = tiny_model_dir(tmp_path)
    monkeypatch.chdir(tmp_path)
    file = write_gguf(tmp_path / "tiny.gguf", tiny_module("llama"), tiny_tokenizer())
    monkeypatch.setattr(resolve_module, "find_packaged_file", lambda name: file)
    assert loadable_name("Qwen/Qwen3-0.6B", tmp_path) == "Qwen/Qwen3-0.6B"  # an id of the Hub stays one
    name = {"relative": directory.name, "gguf": str(file), "packaged": "smollm2-135m"}[given]
    policy = adapted_policy(Path(name))
    move(policy.module)
    save_policy(policy, tmp_path / "step_1")
    adapter = tmp_path / "step_1" / "adapter"
    monkeypatch.chdir("/")
    theirs = peft.AutoPeftModelForCausalLM.from_pretrained(adapter)
    torch.testing.assert_close(plain_logits(theirs), plain_logits(policy.module), atol=1e-4, rtol=1e-4)
    monkeypatch.chdir(tmp_path)
    # As on another machine, and as adapters were written before.
    (adapter / "SHA256SUMS").unlink()
    for base in ("/not/here", name):
        settings = json.loads((adapter / "adapter_config.json").read_text())
        (adapter / "adapter_config.json").write_text(json.dumps({**settings, "base_model_name_or_path": base}))
        again = load_policy(ModelConfig(name=str(adapter), dtype="float32", device="cpu"))
        torch.testing.assert_close(plain_logits(again.module), plain_logits(policy.module), atol=1e-4, rtol=1e-4)


def test_a_model_without_linear_layers_is_refused_in_words() -> None:
    config = GPT2Config(vocab_size=300, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    for targets in (["all-linear"], ["c_attn"]):
        with pytest.raises(UserError, match=r"GPT2LMHeadModel has none besides its head"):
            adapt(GPT2LMHeadModel(config), LoraConfig(rank=2, targets=targets), "")


@pytest.mark.parametrize("target", ["q_prj", "lm_head", "mlp"])
def test_targets_that_the_model_lacks_are_named(tiny_dir: Path, target: str) -> None:
    with pytest.raises(UserError, match=rf"model\.lora\.targets names {target}.*Known: down_proj, gate_proj"):
        adapted_policy(tiny_dir, targets=["q_proj", target])


def test_without_peft_the_extra_is_named(tiny_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(UserError, match=r"uv sync --inexact --extra lora"):
        adapted_policy(tiny_dir)
