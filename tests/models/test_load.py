"""Policies: any family loads as one trainable module, and what is saved is what plain transformers loads."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, FalconConfig, FalconForCausalLM

from slimrl.config.model import ModelConfig
from slimrl.errors import UserError
from slimrl.io.checksums import is_sealed
from slimrl.models.load import Policy, load_policy, save_policy, save_weights
from tests.tiny import FAMILIES, tiny_model_dir, tiny_tokenizer


def policy_from(directory: Path, dtype: str = "float32") -> Policy:
    return load_policy(ModelConfig.model_validate({"name": str(directory), "dtype": dtype, "device": "cpu"}))


def logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.inference_mode():
        return module(input_ids=torch.arange(3, 40)[None]).logits[0]


def test_an_architecture_with_its_own_attention_is_refused(tmp_path: Path) -> None:
    config = FalconConfig(vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    FalconForCausalLM(config).save_pretrained(tmp_path)
    tiny_tokenizer(300).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="cannot be trained: its attention in transformers cannot be replaced"):
        policy_from(tmp_path)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_module_is_ready_to_sample_and_to_train(tiny_dir: Path, dtype: str) -> None:
    policy = policy_from(tiny_dir, dtype)
    parameters = list(policy.module.parameters())
    assert policy.dtype == getattr(torch, dtype)
    assert {parameter.dtype for parameter in parameters} == {policy.dtype}
    assert all(parameter.requires_grad for parameter in parameters)
    assert not policy.module.training
    assert policy.device == torch.device("cpu")
    assert policy.chat.stop_ids == {2}


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", "float32"),
        pytest.param("llama", "bfloat16", marks=pytest.mark.slow),
        *(pytest.param(f, d, marks=pytest.mark.slow) for f in FAMILIES[1:] for d in ("float32", "bfloat16")),
    ],
)
def test_any_family_has_the_logits_of_plain_transformers_and_is_saved_as_it_is(
    tmp_path: Path, family: str, dtype: str
) -> None:
    directory = tiny_model_dir(tmp_path, family)
    policy = policy_from(directory, dtype)
    if dtype == "float32":
        plain = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
        torch.testing.assert_close(logits(policy.module), logits(plain), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(1.5)
    saved = tmp_path / "weights" / "step_1"
    for _ in range(2):  # saving again replaces the directory
        save_policy(policy, saved)
    assert [path.name for path in saved.parent.iterdir()] == ["step_1"]
    module, tied = policy_from(saved, dtype).module, policy.module.config.tie_word_embeddings
    assert torch.equal(logits(module), logits(policy.module))
    assert (module.get_output_embeddings().weight is module.get_input_embeddings().weight) == tied
    plain = AutoModelForCausalLM.from_pretrained(saved, dtype="auto")
    assert (plain.dtype, plain.config.use_cache, plain.generation_config.eos_token_id) == (policy.dtype, True, 2)
    tokenizer = AutoTokenizer.from_pretrained(saved)
    assert tokenizer.chat_template == policy.tokenizer.chat_template
    assert tokenizer.encode("a 1\né") == policy.tokenizer.encode("a 1\né")
    # Weights alone are the same tensors, without checksums; tied ones stand there once.
    save_weights(policy, tmp_path / "weights" / "alone")
    left, right = (load_file(saved.with_name(name) / "model.safetensors") for name in ("step_1", "alone"))
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)
    assert ("lm_head.weight" in left) != tied
    assert not is_sealed(saved.with_name("alone")) and not [*saved.parent.glob(".*")]


def lose_a_tensor(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def add_tokens(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["<one>", "<two>"])
    tokenizer.save_pretrained(directory)


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text(text)


def change(**settings: object) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text())
        (directory / "config.json").write_text(json.dumps(config | settings))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose_a_tensor, r"lack 1 tensors.*layers\.1\.mlp\.up_proj"),
        (add_tokens, "302 tokens"),
        (write("config.json", '{"model_type": "abacus"}'), "abacus"),
        (change(model_type="abacus"), "abacus"),
        (change(model_type=3), "cannot be loaded: "),
        (change(num_attention_heads="many"), "cannot be loaded: "),
        (change(hidden_size=-1), "cannot be loaded: "),
        (write("tokenizer.json", "{}"), r"The tokenizer in .* cannot be loaded: "),
        (write("tokenizer.json", '{"model": 3}'), "The tokenizer in .* cannot be"),
    ],
)
def test_a_directory_that_does_not_fit_together_is_a_clear_error(
    tmp_path: Path, tiny_dir: Path, damage: Callable[[Path], None], message: str
) -> None:
    directory = shutil.copytree(tiny_dir, tmp_path / "model")
    damage(directory)
    with pytest.raises(UserError, match=message):
        policy_from(directory)
